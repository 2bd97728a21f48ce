// The stacks that call sites are known by.
#include "bpf/tracing.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

/// Code that is no longer than this lies within it from its function's start.
constexpr uint64_t function_reach_bytes = 256;

bool is_in(uint64_t address, uint64_t function) {
    return address > function && address - function < function_reach_bytes;
}

__attribute__((noipa)) void* one_caller(uint64_t address) {
    void* const block = own_malloc(10, block_at(address));
    asm volatile("" ::: "memory");
    return block;
}

__attribute__((noipa)) void* other_caller(uint64_t address) {
    void* const block = own_malloc(10, block_at(address));
    asm volatile("" ::: "memory");
    return block;
}

#pragma GCC push_options
#pragma GCC optimize("no-omit-frame-pointer")
__attribute__((noipa)) void* recursion(uint64_t frames) {
    void* const block = frames <= 1 ? own_malloc(10, block_at(0x1000)) : recursion(frames - 1);
    asm volatile("" ::: "memory");
    return block;
}
#pragma GCC pop_options

}  // namespace

TEST_CASE("a call site is one stack, sent once, the allocation's caller first", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe});
    tracing.run([](Shared&) {
        for (uint64_t index = 1; index <= 5; ++index)
            one_caller(0x1000 * index);
        other_caller(0x9000);
    });
    const Events events = tracing.drain();
    const Reading reading = tracing.read();
    const std::vector<Site> sites = reading.sites("malloc");
    REQUIRE(sites.size() == 2);
    CHECK(events.stacks.size() == 2);
    for (const Site& site : sites) {
        const Events::Stack* const stack = events.stack_of(site.index);
        REQUIRE(stack);
        const bool is_first = is_in(stack->return_addresses.at(0), address_of(&one_caller));
        CHECK(is_in(stack->return_addresses.at(0), address_of(is_first ? &one_caller : &other_caller)));
        CHECK(site.totals.allocations == (is_first ? 5 : 1));
    }
    for (const Block& block : reading.snapshot.blocks) {
        const Events::Stack* const stack = events.stack_of(block.site);
        REQUIRE(stack);
        CHECK(is_in(stack->return_addresses.at(0), address_of(block.address == 0x9000 ? &other_caller : &one_caller)));
        CHECK(block.birth_ns > reading.snapshot.address_spaces.at(0).first_seen_ns - 1);
        CHECK(block.birth_ns <= reading.snapshot.time_ns);
    }
}

TEST_CASE("a stack is followed along the frame pointers", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe});
    tracing.run([](Shared&) { recursion(40); });
    const Events events = tracing.drain();
    REQUIRE(events.stacks.size() == 1);
    const std::vector<uint64_t>& frames = events.stacks[0].return_addresses;
    REQUIRE(frames.size() >= 40);
    for (size_t index = 0; index < 40; ++index) {
        INFO("frame " << index);
        CHECK(is_in(frames[index], address_of(&recursion)));
    }
    CHECK(tracing.read().count(MT_COUNT_STACKS_TRUNCATED) == 0);
}

TEST_CASE("a stack with more frames than are wanted is cut and says so", "[bpf][losses]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    SessionOptions options = small_tables();
    options.max_stack_frames = GENERATE(1u, 3u, 127u);
    Tracing tracing(rung, {malloc_probe}, options);
    tracing.run([](Shared&) { recursion(200); });
    const Events events = tracing.drain();
    REQUIRE(events.stacks.size() == 1);
    CHECK(events.stacks[0].return_addresses.size() == options.max_stack_frames);
    const Reading reading = tracing.read();
    REQUIRE(reading.sites("malloc").size() == 1);
    CHECK((reading.sites("malloc")[0].flags & MT_SITE_STACK_TRUNCATED) != 0);
    CHECK(reading.counts() == Counts{{MT_COUNT_STACKS_TRUNCATED, 1}});
}
