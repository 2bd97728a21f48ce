// What one allocator call is worth: each operation of the table, its failures and its corner cases, exactly.
#include "bpf/tracing.hpp"

using namespace memtrace;
using namespace memtrace::test;

TEST_CASE("malloc makes a block and free ends it", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe, free_probe});
    tracing.run([](Shared&) {
        own_malloc(100, block_at(0x1000));
        own_malloc(50, block_at(0x2000));
        own_malloc(0, block_at(0x3000));
        own_malloc(70, nullptr);
        own_free(block_at(0x1000), nullptr);
        own_free(nullptr, nullptr);
    });
    const Reading reading = tracing.read();
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x2000, 50}, {0x3000, 0}});
    CHECK(reading.totals().allocations == 3);
    CHECK(reading.totals().allocated_bytes == 150);
    CHECK(reading.totals().frees == 1);
    CHECK(reading.totals().freed_bytes == 100);
    CHECK(reading.counts() == Counts{});
}

TEST_CASE("a free of a block that was not recorded is an unknown free and nothing else", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {free_probe});
    tracing.run([](Shared&) { own_free(block_at(0x1000), nullptr); });
    const Reading reading = tracing.read();
    CHECK(reading.totals().frees == 0);
    CHECK(reading.counts() == Counts{{MT_COUNT_UNKNOWN_FREES, 1}});
}

TEST_CASE("a calloc is count times size bytes, beyond 32 bits too", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {calloc_probe});
    tracing.run([](Shared&) {
        own_calloc(7, 9, block_at(0x1000));
        own_calloc(1ull << 20, 1ull << 20, block_at(0x7fff'ffff'fff0));
    });
    const Reading reading = tracing.read();
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x1000, 63}, {0x7fff'ffff'fff0, 1ull << 40}});
    CHECK(reading.totals().allocated_bytes == 63 + (1ull << 40));
}

TEST_CASE("a realloc gives back the old block and makes the new one", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe, realloc_probe});

    SECTION("moved, in place, from NULL, and to size 0") {
        tracing.run([](Shared&) {
            own_malloc(10, block_at(0x1000));
            own_realloc(block_at(0x1000), 20, block_at(0x2000));
            own_realloc(block_at(0x2000), 5, block_at(0x2000));
            own_realloc(nullptr, 7, block_at(0x3000));
            own_malloc(40, block_at(0x4000));
            own_realloc(block_at(0x4000), 0, nullptr);
        });
        const Reading reading = tracing.read();
        CHECK(reading.blocks() == std::vector<LiveBlock>{{0x2000, 5}, {0x3000, 7}});
        CHECK(reading.totals().allocations == 5);
        CHECK(reading.totals().frees == 3);
        CHECK(reading.totals().freed_bytes == 10 + 20 + 40);
        CHECK(reading.counts() == Counts{});
    }
    SECTION("a failure puts the block back, with its age and site") {
        tracing.run([](Shared&) { own_malloc(10, block_at(0x1000)); });
        const Block before = tracing.read().snapshot.blocks.front();
        tracing.run([](Shared&) {
            own_realloc(block_at(0x1000), 1ull << 40, nullptr);
            own_realloc(nullptr, 0, nullptr);
        });
        const Reading reading = tracing.read();
        REQUIRE(reading.blocks() == std::vector<LiveBlock>{{0x1000, 10}});
        CHECK(reading.snapshot.blocks.front().birth_ns == before.birth_ns);
        CHECK(reading.snapshot.blocks.front().site == before.site);
        CHECK(reading.totals().frees == 0);
        CHECK(reading.counts() == Counts{});
    }
    SECTION("of a block that was not recorded: an unknown free and an allocation") {
        tracing.run([](Shared&) {
            own_realloc(block_at(0x1000), 30, block_at(0x2000));
            own_realloc(block_at(0x9000), 30, nullptr);
        });
        const Reading reading = tracing.read();
        CHECK(reading.blocks() == std::vector<LiveBlock>{{0x2000, 30}});
        CHECK(reading.totals().frees == 0);
        CHECK(reading.counts() == Counts{{MT_COUNT_UNKNOWN_FREES, 1}});
    }
}

TEST_CASE("while a realloc runs, another may get the address of the old block", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe, realloc_probe});
    tracing.run([](Shared&) {
        own_malloc(10, block_at(0x1000));
        // A stack of its own breaks the run of allocator frames, as another thread would.
        own_realloc(block_at(0x1000), 20, [] {
            volatile char far_away[32 << 10];
            far_away[0] = 0;
            own_malloc(33, block_at(0x1000));
            return far_away[0] ? nullptr : block_at(0x2000);
        });
    });
    const Reading reading = tracing.read();
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x1000, 33}, {0x2000, 20}});
    CHECK(reading.totals().frees == 1);
    CHECK(reading.counts() == Counts{});
}

TEST_CASE("posix_memalign's block is where it was stored, and only when the status is 0", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {posix_memalign_probe, free_probe});
    tracing.run([](Shared&) {
        void* block = nullptr;
        own_posix_memalign(&block, 64, 300, block_at(0x1000));
        own_posix_memalign(&block, 64, 400, nullptr);
    });
    CHECK(tracing.read().blocks() == std::vector<LiveBlock>{{0x1000, 300}});
    tracing.run([](Shared&) { own_free(block_at(0x1000), nullptr); });
    const Reading reading = tracing.read();
    CHECK(reading.blocks().empty());
    CHECK(reading.totals().allocations == 1);
    CHECK(reading.counts() == Counts{});
}

TEST_CASE("blocks outside the size limits are not recorded, and the limits are inside", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    SessionOptions options = small_tables();
    options.min_size_bytes = 100;
    options.max_size_bytes = 200;
    Tracing tracing(rung, {malloc_probe, free_probe}, options);
    tracing.run([](Shared&) {
        own_malloc(99, block_at(0x1000));
        own_malloc(100, block_at(0x2000));
        own_malloc(200, block_at(0x3000));
        own_malloc(201, block_at(0x4000));
        own_free(block_at(0x4000), nullptr);
    });
    const Reading reading = tracing.read();
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x2000, 100}, {0x3000, 200}});
    CHECK(reading.counts() == Counts{{MT_COUNT_UNKNOWN_FREES, 1}, {MT_COUNT_BLOCKS_FILTERED, 2}});
}

TEST_CASE("a trace of blocks has each that comes and goes, in order", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    SessionOptions options = small_tables();
    options.traces_blocks = true;
    Tracing tracing(rung, {malloc_probe, realloc_probe, free_probe}, options);
    tracing.run([](Shared&) {
        own_malloc(10, block_at(0x1000));
        own_realloc(block_at(0x1000), 20, block_at(0x2000));
        own_free(block_at(0x2000), nullptr);
        own_free(block_at(0x5000), nullptr);
    });
    const Events events = tracing.drain();
    struct Expected {
        mt_event_type type;
        uint64_t address;
        uint64_t size_bytes;
        const char* row;
    };
    const std::vector<Expected> expected = {{MT_EVENT_ALLOC, 0x1000, 10, "malloc"},
                                            {MT_EVENT_FREE, 0x1000, 10, "realloc"},
                                            {MT_EVENT_ALLOC, 0x2000, 20, "realloc"},
                                            {MT_EVENT_FREE, 0x2000, 20, "free"}};
    REQUIRE(events.blocks.size() == expected.size());
    for (size_t index = 0; index < expected.size(); ++index) {
        INFO("event " << index);
        const mt_block_event& event = events.blocks[index];
        CHECK(event.header.type == expected[index].type);
        CHECK(event.header.tgid == static_cast<uint32_t>(tracing.target().pid()));
        CHECK(event.header.tid == event.header.tgid);
        CHECK(event.address == expected[index].address);
        CHECK(event.size_bytes == expected[index].size_bytes);
        CHECK(event.row == row_of(expected[index].row));
        CHECK(events.stack_of(event.site) != nullptr);
    }
    CHECK(events.blocks[0].site == events.blocks[1].site);
    CHECK(events.blocks[1].site != events.blocks[2].site);
}

TEST_CASE("a reading of births has those of all blocks, in the table and in its overflow", "[bpf]") {
    if (!can_trace(AttachRung::session)) return;
    SessionOptions options = small_tables();
    options.max_live_blocks = 64;
    Tracing tracing(AttachRung::session, {malloc_probe, calloc_probe}, options);
    tracing.run([](Shared&) {
        for (uintptr_t block = 1; block <= 64; ++block) {
            own_malloc(10, block_at(block * 0x10));
            own_calloc(1, 20, block_at(block * 0x10 + 0x10000));
        }
    });
    const Snapshot whole = tracing.read().snapshot;
    const Snapshot births = tracing.session().read_snapshot(BlockDetail::births);
    CHECK_FALSE(births.blocks.are_whole());
    CHECK(whole.blocks.size() > 64);
    const auto pairs_of = [](const LiveBlocks& blocks) {
        std::vector<std::pair<uint64_t, uint32_t>> pairs;
        for (const Block& block : blocks)
            pairs.emplace_back(block.birth_ns, block.site);
        std::ranges::sort(pairs);
        return pairs;
    };
    CHECK(pairs_of(births.blocks) == pairs_of(whole.blocks));
    CHECK(tracing.session().read_snapshot(BlockDetail::none).blocks.empty());
}
