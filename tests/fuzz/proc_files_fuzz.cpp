// Any bytes as what /proc and perf hand on of a process: maps, records of the ring, paths of control groups. The first
// byte chooses the parser. Run by libFuzzer; first inputs are in proc_files_corpus.
#include <cstdlib>
#include <string_view>

#include "processes/container.hpp"
#include "processes/mapping_events.hpp"
#include "processes/mappings.hpp"

using namespace memtrace;

namespace {

void parse_maps(std::string_view text) {
    const auto mappings = parse_mappings(text);
    if (!mappings) return;
    for (const Mapping& mapping : *mappings)
        if (mapping.end < mapping.start) std::abort();
}

/// A ring's size is a power of two, and what waits in it is no more than that.
void parse_records(std::span<const std::byte> bytes) {
    size_t size_bytes = 8;
    while (size_bytes * 2 <= bytes.size())
        size_bytes *= 2;
    if (bytes.size() < size_bytes) return;
    MappingBatch batch;
    parse_ring(bytes.first(size_bytes), size_bytes - 8, 2 * size_bytes - 8, batch);
    for (const MappingEvent& event : batch.events)
        if (event.mapping.end < event.mapping.start) std::abort();
    (void)parse_mapping_record(bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    if (size_bytes == 0) return 0;
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size_bytes - 1);
    switch (data[0] % 3) {
        case 0:
            parse_maps(text);
            break;
        case 1:
            parse_records(std::as_bytes(std::span(text)));
            break;
        default:
            (void)container_in(text);
    }
    return 0;
}
