// The events of functions that map and unmap: what was asked for, what came of it, and in which order.
#include <sys/mman.h>

#include "bpf/tracing.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

const std::vector<OwnProbe> mapping_probes = {mmap_probe, munmap_probe, mremap_probe};

std::vector<mt_event_type> types_of(const std::vector<mt_mapping_event>& events) {
    std::vector<mt_event_type> types;
    for (const mt_mapping_event& event : events)
        types.push_back(static_cast<mt_event_type>(event.header.type));
    return types;
}

__attribute__((noipa)) void map_twice(Shared&) {
    own_mmap(nullptr, 5000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, block_at(0x10000));
    own_mmap(nullptr, 5000, PROT_NONE, MAP_SHARED, 7, 0, MAP_FAILED);
    asm volatile("" ::: "memory");
}

}  // namespace

TEST_CASE("a mapping that was made is an event with its site, one that failed is none", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, mapping_probes);
    tracing.run(map_twice);
    const Events events = tracing.drain();
    REQUIRE(types_of(events.mappings) == std::vector<mt_event_type>{MT_EVENT_MAP});
    const mt_mapping_event& event = events.mappings[0];
    CHECK(event.header.tgid == static_cast<uint32_t>(tracing.target().pid()));
    CHECK(event.address == 0x10000);
    CHECK(event.size_bytes == 5000);
    CHECK(event.protection == (PROT_READ | PROT_WRITE));
    CHECK(event.map_flags == (MAP_PRIVATE | MAP_ANONYMOUS));
    CHECK(event.row == row_of("mmap"));
    CHECK(event.caller > address_of(&map_twice));
    CHECK(event.caller < address_of(&map_twice) + 256);
    const Events::Stack* const stack = events.stack_of(event.site);
    REQUIRE(stack);
    CHECK(stack->return_addresses.at(0) == event.caller);
    // Its bytes are the mapping ledger's business.
    CHECK(tracing.read().totals().allocations == 0);
    CHECK(tracing.read().blocks().empty());
}

TEST_CASE("an unmapping is told before it happens, and taken back when it fails", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, mapping_probes);
    tracing.run([](Shared&) {
        own_munmap(block_at(0x10000), 4096, 0);
        own_munmap(block_at(0x20001), 8192, -1);
    });
    const Events events = tracing.drain();
    REQUIRE(types_of(events.mappings) ==
            std::vector<mt_event_type>{MT_EVENT_UNMAP, MT_EVENT_UNMAP, MT_EVENT_UNMAP_FAILED});
    CHECK(events.mappings[0].address == 0x10000);
    CHECK(events.mappings[0].size_bytes == 4096);
    CHECK(events.mappings[1].address == 0x20001);
    CHECK(events.mappings[2].address == 0x20001);
    CHECK(events.mappings[2].size_bytes == 8192);
    for (const mt_mapping_event& event : events.mappings)
        CHECK(event.row == row_of("munmap"));
}

TEST_CASE("a moved mapping is two events, and one that failed is taken back", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, mapping_probes);
    tracing.run([](Shared&) {
        own_mremap(block_at(0x10000), 4096, 8192, MREMAP_MAYMOVE, nullptr, block_at(0x50000));
        own_mremap(block_at(0x50000), 8192, 1ull << 46, 0, nullptr, MAP_FAILED);
    });
    const Events events = tracing.drain();
    REQUIRE(types_of(events.mappings) ==
            std::vector<mt_event_type>{MT_EVENT_REMAP, MT_EVENT_REMAP_DONE, MT_EVENT_REMAP, MT_EVENT_REMAP_FAILED});
    const mt_mapping_event& moved = events.mappings[1];
    CHECK(moved.address == 0x50000);
    CHECK(moved.size_bytes == 8192);
    CHECK(moved.old_address == 0x10000);
    CHECK(moved.old_size_bytes == 4096);
    CHECK(moved.map_flags == MREMAP_MAYMOVE);
    CHECK(moved.site != 0);
    CHECK(events.mappings[0].old_address == 0x10000);
    CHECK(events.mappings[0].old_size_bytes == 4096);
    CHECK(events.mappings[3].old_address == 0x50000);
    CHECK(events.mappings[3].old_size_bytes == 8192);
}

TEST_CASE("mappings that an allocator makes inside are its own", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe, mmap_probe, munmap_probe});
    tracing.run([](Shared&) {
        own_malloc(100'000, [] {
            own_mmap(nullptr, 200'000, PROT_READ, MAP_PRIVATE, -1, 0, block_at(0x10000));
            own_munmap(block_at(0x20000), 4096, 0);
            return block_at(0x10010);
        });
    });
    // They are told, so that it is known what the allocator has, and are nobody's.
    const Events events = tracing.drain();
    REQUIRE(types_of(events.mappings) == std::vector<mt_event_type>{MT_EVENT_MAP, MT_EVENT_UNMAP});
    CHECK(events.mappings[0].address == 0x10000);
    CHECK(events.mappings[0].size_bytes == 200'000);
    for (const mt_mapping_event& event : events.mappings) {
        CHECK(event.flags == MT_MAPPING_OF_ALLOCATOR);
        CHECK(event.site == 0);
    }
    CHECK(tracing.read().blocks() == std::vector<LiveBlock>{{0x10010, 100'000}});
    CHECK(tracing.read().counts() == Counts{{MT_COUNT_CALLS_SUPPRESSED, 2}});
}
