// Stacks that meet a file without an unwind table: sent raw, once an allocation, and ended by the user side.
#include <cstring>

#include "bpf/tracing.hpp"
#include "unwind/stack_walker.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

__attribute__((noipa)) void allocate_below() {
    own_malloc(10, block_at(0x1000));
    asm volatile("");
}

/// The tables of this program's file are asked for again: those that Tracing put there are gone.
void forget_tables(Tracing& tracing) {
    for (const mt_file& file : files_of_this_program())
        tracing.session().remove_unwind_table(file);
}

}  // namespace

TEST_CASE("a stack without a table comes raw, with what is needed to walk it", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe});
    forget_tables(tracing);
    tracing.run([](Shared&) {
        allocate_below();
        allocate_below();
    });
    const Reading reading = tracing.read();
    CHECK(reading.totals().allocations == 2);
    CHECK(reading.counts() == Counts{{MT_COUNT_FREES_MISSED, 1}});
    const Events events = tracing.drain();
    CHECK(events.files.size() == 1);
    REQUIRE(events.raw_stacks.size() == 2);
    CHECK(events.raw_stacks[0].site != events.raw_stacks[1].site);
    const mt_raw_stack_event& raw = events.raw_stacks[0];
    REQUIRE(raw.frame_count == 1);
    const uint64_t function = address_of(allocate_below);
    CHECK(raw.frames[0] > function);
    CHECK(raw.frames[0] < function + 256);
    CHECK(raw.pc == raw.frames[0] - 1);
    REQUIRE(raw.stack_bytes >= 4096);
    // The caller's return address is in the copy, above the stack pointer.
    const uint64_t below = raw.stack_pointer & 4095;
    bool is_code_found = false;
    for (uint64_t offset = below; offset + 8 <= raw.stack_bytes; offset += 8) {
        uint64_t word = 0;
        std::memcpy(&word, raw.stack + offset, sizeof word);
        is_code_found |= word - function < (1 << 24) || function - word < (1 << 24);
    }
    CHECK(is_code_found);
}

TEST_CASE("when the table comes, the same stack is a site as any other", "[bpf]") {
    const auto rung = AttachRung::session;
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe});
    forget_tables(tracing);
    tracing.run([](Shared&) { allocate_below(); });
    for (const mt_file& file : files_of_this_program())
        REQUIRE(tracing.session().add_file_without_cfi(file));
    tracing.run([](Shared&) { allocate_below(); });
    tracing.run([](Shared&) { allocate_below(); });
    const Events events = tracing.drain();
    CHECK(events.raw_stacks.size() == 1);
    CHECK(events.stacks.size() == 1);
    CHECK(tracing.read().sites("malloc").size() == 2);
}

TEST_CASE("raw stacks leave half of the ring free: the others are cut, and counted", "[bpf]") {
    const auto rung = AttachRung::session;
    if (!can_trace(rung)) return;
    SessionOptions options = small_tables();
    options.ring_size_bytes = 1u << 16;
    Tracing tracing(rung, {malloc_probe}, options);
    forget_tables(tracing);
    tracing.run([](Shared&) {
        for (uint64_t block = 1; block <= 100; ++block)
            own_malloc(1, block_at(block << 12));
    });
    const Reading reading = tracing.read();
    CHECK(reading.totals().allocations == 100);
    const uint64_t sent = tracing.drain().raw_stacks.size();
    CHECK(sent > 0);
    CHECK(sent < 4);
    CHECK(reading.counts() == Counts{{MT_COUNT_STACKS_TRUNCATED, 100 - sent}});
}
