// Every way to lose something, provoked: it is counted, by the right counter and as often as it happened, and what is
// not lost stays exact.
#include <alloca.h>
#include <setjmp.h>

#include <array>
#include <utility>

#include "bpf/fiber.hpp"
#include "bpf/tracing.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

/// Farther apart than this on one stack, two allocator calls are no longer one inside the other (bpf/calls.h).
constexpr size_t far_bytes = 20 << 10;

/// Calls own_malloc inside own_malloc, `depth` times in all; `address` is the outermost's.
void* nested_mallocs(uint64_t depth, size_t apart_bytes, uint64_t address, Act innermost) {
    return own_malloc(10, [=]() -> void* {
        auto* const between = static_cast<volatile char*>(alloca(apart_bytes));
        between[0] = 1;
        if (depth > 1)
            nested_mallocs(depth - 1, apart_bytes, address + 0x1000, innermost);
        else
            innermost();
        return block_at(address + (between[0] - 1));
    });
}

constexpr uint64_t call_sites = 10;

/// Ten blocks of 100 to 109 bytes from `address` on, each from another call site.
void malloc_at_ten_sites(uint64_t address) {
    malloc_at_each_site(address, std::make_integer_sequence<uint64_t, call_sites>());
}

constexpr uint64_t bytes_of_ten_sites = 1045;

}  // namespace

TEST_CASE("blocks that the live table has no room for are counted", "[bpf][losses]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    constexpr uint64_t allocated = 500;
    SessionOptions options = small_tables();
    options.max_live_blocks = 64;
    Tracing tracing(rung, {malloc_probe, realloc_probe, free_probe}, options);
    tracing.run([](Shared&) {
        for (uint64_t index = 1; index <= allocated; ++index)
            own_malloc(index, block_at(index * 0x40));
    });
    const Reading full = tracing.read();
    const uint64_t not_recorded = full.count(MT_COUNT_BLOCKS_LIVE_TABLE_FULL);
    CHECK(full.counts() == Counts{{MT_COUNT_BLOCKS_LIVE_TABLE_FULL, not_recorded}});
    CHECK(not_recorded > 0);
    CHECK(full.totals().allocations + not_recorded == allocated);
    CHECK(full.blocks().size() == full.totals().allocations);
    // Twice as many slots as blocks were asked for, and room for an eighth behind them.
    CHECK(full.blocks().size() >= 64);
    CHECK(full.blocks().size() <= 128 + 8);
    for (const LiveBlock& block : full.blocks())
        CHECK(block.address == block.size_bytes * 0x40);

    tracing.run([](Shared&) {
        for (uint64_t index = 1; index <= allocated; ++index)
            own_free(block_at(index * 0x40), nullptr);
        own_malloc(7, block_at(0x40));
    });
    const Reading after = tracing.read();
    CHECK(after.blocks() == std::vector<LiveBlock>{{0x40, 7}});
    CHECK(after.count(MT_COUNT_UNKNOWN_FREES) == not_recorded);
    CHECK(after.count(MT_COUNT_BLOCKS_LIVE_TABLE_FULL) == not_recorded);
}

TEST_CASE("a block beyond the calls in flight that a thread can have is counted", "[bpf][losses]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe});
    tracing.run([](Shared&) { nested_mallocs(MT_MAX_CALLS + 3, far_bytes, 0x1000, nullptr); });
    const Reading reading = tracing.read();
    CHECK(reading.totals().allocations == MT_MAX_CALLS);
    CHECK(reading.blocks().front().address == 0x1000);
    CHECK(reading.blocks().back().address == 0x1000 * MT_MAX_CALLS);
    CHECK(reading.counts() == Counts{{MT_COUNT_BLOCKS_CALLS_FULL, 3}});

    tracing.run([](Shared&) { own_malloc(33, block_at(0x100000)); });
    CHECK(tracing.read().totals().allocations == MT_MAX_CALLS + 1);
}

TEST_CASE("blocks of call sites that the table has no room for keep the sums exact", "[bpf][losses]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    SessionOptions options = small_tables();
    options.max_sites = 4;
    Tracing tracing(rung, {malloc_probe, free_probe}, options);
    tracing.run([](Shared&) {
        malloc_at_ten_sites(0x10000);
        malloc_at_ten_sites(0x20000);
    });
    const Reading reading = tracing.read();
    CHECK(reading.totals().allocations == 2 * call_sites);
    CHECK(reading.totals().allocated_bytes == 2 * bytes_of_ten_sites);
    CHECK(reading.counts() == Counts{{MT_COUNT_STACKS_SITES_FULL, 2 * (call_sites - 4)}});
    uint64_t of_unknown_stack = 0;
    for (const Site& site : reading.snapshot.sites)
        if (site.flags & MT_SITE_STACK_UNKNOWN) of_unknown_stack += site.totals.allocations;
    CHECK(of_unknown_stack == 2 * (call_sites - 4));
    CHECK(reading.sites("malloc").size() == 4);

    tracing.run([](Shared&) {
        for (uint64_t number = 0; number < call_sites; ++number)
            own_free(block_at(0x10000 + 0x1000 * number), nullptr);
    });
    CHECK(tracing.read().totals().freed_bytes == bytes_of_ten_sites);
}

TEST_CASE("a stack that found the ring full is sent later, and the counter goes back", "[bpf][losses]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    SessionOptions options = small_tables();
    options.ring_size_bytes = 4096;
    Tracing tracing(rung, {malloc_probe}, options);
    tracing.run([](Shared&) { malloc_at_ten_sites(0x10000); });

    uint64_t missing = tracing.read().count(MT_COUNT_STACKS_RING_FULL);
    CHECK(tracing.read().totals().allocated_bytes == bytes_of_ten_sites);
    Events all = tracing.drain();
    CHECK(all.stacks.size() > 0);
    CHECK(all.stacks.size() + missing == call_sites);
    uint64_t rounds = 1;
    for (; missing > 0 && rounds < 10; ++rounds) {
        tracing.run([](Shared& shared) { malloc_at_ten_sites(0x20000 + 0x10000 * shared.numbers[0].fetch_add(1)); });
        for (const Events::Stack& stack : tracing.drain().stacks) {
            CHECK(all.stack_of(stack.site) == nullptr);
            all.stacks.push_back(stack);
        }
        missing = tracing.read().count(MT_COUNT_STACKS_RING_FULL);
        CHECK(all.stacks.size() + missing == call_sites);
    }
    const Reading healed = tracing.read();
    CHECK(healed.counts() == Counts{});
    CHECK(healed.totals().allocated_bytes == rounds * bytes_of_ten_sites);
    for (const Site& site : healed.snapshot.sites)
        CHECK((site.flags & (MT_SITE_READY | MT_SITE_STACK_UNKNOWN)) == MT_SITE_READY);
}

TEST_CASE("events that the ring has no room for are counted one by one", "[bpf][losses]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    SessionOptions options = small_tables();
    options.ring_size_bytes = 4096;
    SECTION("of mappings") {
        Tracing tracing(rung, {munmap_probe}, options);
        tracing.run([](Shared&) {
            for (uint64_t index = 1; index <= 100; ++index)
                own_munmap(block_at(index << 12), 4096, 0);
        });
        const Reading reading = tracing.read();
        const uint64_t lost = reading.count(MT_COUNT_MAPPINGS_RING_FULL);
        CHECK(lost > 0);
        CHECK(tracing.drain().mappings.size() + lost == 100);
        CHECK(reading.counts() == Counts{{MT_COUNT_MAPPINGS_RING_FULL, lost}});
    }
    SECTION("of blocks") {
        options.traces_blocks = true;
        Tracing tracing(rung, {malloc_probe, free_probe}, options);
        tracing.run([](Shared&) {
            for (int round = 0; round < 100; ++round) {
                own_malloc(10, block_at(0x1000));
                own_free(block_at(0x1000), nullptr);
            }
        });
        const Reading reading = tracing.read();
        const uint64_t lost = reading.count(MT_COUNT_EVENTS_RING_FULL);
        CHECK(lost > 0);
        CHECK(tracing.drain().blocks.size() + lost == 200);
        CHECK(reading.totals().frees == 100);
        CHECK(reading.counts() == Counts{{MT_COUNT_EVENTS_RING_FULL, lost}});
    }
}

TEST_CASE("a block that is found alive where a new one begins is a missed free", "[bpf][losses]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe, realloc_probe});
    tracing.run([](Shared&) {
        own_malloc(10, block_at(0x1000));
        own_free(block_at(0x1000), nullptr);
        own_malloc(20, block_at(0x1000));
        own_malloc(5, block_at(0x2000));
        own_realloc(block_at(0x2000), 30, block_at(0x1000));
    });
    const Reading reading = tracing.read();
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x1000, 30}});
    CHECK(reading.totals().allocated_bytes == 65);
    CHECK(reading.totals().freed_bytes == 35);
    CHECK(reading.counts() == Counts{{MT_COUNT_FREES_MISSED, 2}});
}

TEST_CASE("a realloc that longjmp leaves is unresolved, and its old block is gone", "[bpf][losses]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe, realloc_probe});
    tracing.run([](Shared&) {
        own_malloc(10, block_at(0x1000));
        static jmp_buf env;
        if (setjmp(env) == 0) own_realloc(block_at(0x1000), 20, []() -> void* { longjmp(env, 1); });
        own_malloc(30, block_at(0x3000));
    });
    const Reading reading = tracing.read();
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x3000, 30}});
    CHECK(reading.totals().frees == 1);
    CHECK(reading.counts() == Counts{{MT_COUNT_REALLOCS_UNRESOLVED, 1}});
}

TEST_CASE("a call whose return the kernel drops because 64 are pending is counted", "[bpf][losses]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    constexpr uint64_t max_pending = 64;
    Tracing tracing(rung, {malloc_probe});
    tracing.run([](Shared&) {
        nested_mallocs(max_pending, 16, 0x1000, [] {
            auto* const between = static_cast<volatile char*>(alloca(far_bytes));
            between[0] = 0;
            own_malloc(20, block_at(0x900000));
            return nullptr;
        });
        own_malloc(30, block_at(0xa00000));
    });
    const Reading reading = tracing.read();
    CHECK(reading.count(MT_COUNT_CALLS_SUPPRESSED) == max_pending - 1);
    if (rung == AttachRung::session) {
        // Only returns that are wanted are pending there: two.
        CHECK(reading.blocks() == std::vector<LiveBlock>{{0x1000, 10}, {0x900000, 20}, {0xa00000, 30}});
        CHECK(reading.count(MT_COUNT_RETURNS_MISSED) == 0);
        return;
    }
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x1000, 10}, {0xa00000, 30}});
    CHECK(reading.count(MT_COUNT_RETURNS_MISSED) == 1);
}

TEST_CASE("a call on a higher stack while another waits on a lower one is counted, and the target lives",
          "[bpf][losses]") {
    // Not on the other rungs: there a probe program cannot decline the return, and Linux itself then drops the waiting
    // one and ends such a program with SIGILL (arch/x86 uprobes, uprobe_handle_trampoline).
    if (!can_trace(AttachRung::session)) return;
    Tracing tracing(AttachRung::session, {malloc_probe, free_probe});
    tracing.run([](Shared&) {
        const TwoStacks stacks = map_two_stacks();
        Fiber upper(stacks.upper, TwoStacks::size_bytes, [](Fiber&) { own_malloc(20, block_at(0x2000)); });
        Fiber lower(
            stacks.lower, TwoStacks::size_bytes,
            [](Fiber& fiber) {
                own_malloc(10, [&fiber] {
                    static_cast<Fiber*>(fiber.data())->resume();
                    return block_at(0x1000);
                });
            },
            &upper);
        lower.resume();
        own_malloc(30, block_at(0x3000));
    });
    const Reading reading = tracing.read();
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x1000, 10}, {0x3000, 30}});
    CHECK(reading.counts() == Counts{{MT_COUNT_RETURNS_MISSED, 1}});
}
