#include "runtimes/glibc_mapped.hpp"

#include <array>

namespace memtrace {
namespace {

constexpr uint64_t page_bytes = 4096;
/// Of pages that are something else: looking at one takes half a microsecond.
constexpr uint64_t max_other_pages = 1 << 17;

bool can_have_chunks(const Mapping& mapping) {
    return mapping.path.empty() && mapping.is_readable && mapping.is_writable && !mapping.is_shared;
}

/// 0: no chunk begins there.
uint64_t chunk_at(const TargetMemory& memory, uint64_t address, uint64_t end) {
    const auto words = memory.read_value<std::array<uint64_t, 2>>(address);
    if (!words || (*words)[0] != 0) return 0;
    const GlibcChunkHead head = glibc_chunk_head((*words)[1]);
    const bool is_chunk = head.is_mapped && !head.is_previous_in_use && !head.is_of_thread && head.size_bytes != 0 &&
                          head.size_bytes % page_bytes == 0 && head.size_bytes <= end - address;
    return is_chunk ? head.size_bytes : 0;
}

}  // namespace

std::vector<uint64_t> find_mapped_chunks(const GlibcMalloc& malloc, const std::vector<Mapping>& mappings,
                                         uint64_t expected) {
    std::vector<uint64_t> sizes;
    uint64_t other_pages = 0;
    for (const Mapping& mapping : mappings) {
        if (!can_have_chunks(mapping)) continue;
        for (uint64_t address = mapping.start; address < mapping.end;) {
            if (sizes.size() >= expected || other_pages == max_other_pages) return sizes;
            const uint64_t size_bytes = chunk_at(malloc.memory(), address, mapping.end);
            if (size_bytes == 0) ++other_pages;
            if (size_bytes != 0) sizes.push_back(size_bytes);
            address += size_bytes == 0 ? page_bytes : size_bytes;
        }
    }
    return sizes;
}

}  // namespace memtrace
