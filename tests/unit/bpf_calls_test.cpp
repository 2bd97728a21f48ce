// The stack of allocator calls in flight on one thread: the kernel side's own code, compiled here.
#include "bpf/calls.h"

#include <vector>

#include "catch.hpp"

namespace {

constexpr mt_u64 stack_top = 0x7ffe'0000'1000;
constexpr mt_u64 trampoline = 0x7fff'ffff'e000;

call call_of(mt_u64 sp, mt_u32 row) {
    call result{};
    result.sp = sp;
    result.row = row;
    return result;
}

/// Calls with the rows 1, 2, 3 ..., each 64 bytes below the one before.
calls calls_in_flight(mt_u32 depth) {
    calls result{};
    for (mt_u32 row = 1; row <= depth; ++row) {
        call* const pushed = calls_push(&result);
        REQUIRE(pushed);
        *pushed = call_of(stack_top - 64 * row, row);
    }
    return result;
}

std::vector<mt_u32> rows_of(const calls& in_flight) {
    std::vector<mt_u32> rows;
    for (mt_u32 index = 0; index < in_flight.depth; ++index)
        rows.push_back(in_flight.stack[index].row);
    return rows;
}

call delegate_of(mt_u64 function, mt_u64 return_address) {
    call result = call_of(stack_top, 1);
    result.flags = CALL_HAS_NO_RETURN;
    result.function = function;
    result.return_address = return_address;
    return result;
}

}  // namespace

TEST_CASE("a call is pushed on top of the others until there is no room", "[bpf]") {
    calls in_flight{};
    for (mt_u32 depth = 0; depth < MT_MAX_CALLS; ++depth) {
        CHECK(calls_push(&in_flight) == &in_flight.stack[depth]);
        CHECK(in_flight.depth == depth + 1);
    }
    CHECK(calls_push(&in_flight) == nullptr);
    CHECK(in_flight.depth == MT_MAX_CALLS);
}

TEST_CASE("a call is found by stack pointer and row together", "[bpf]") {
    const calls in_flight = calls_in_flight(MT_MAX_CALLS);
    for (mt_u32 row = 1; row <= MT_MAX_CALLS; ++row) {
        CHECK(calls_find(&in_flight, stack_top - 64 * row, row) == row);
        CHECK(calls_find(&in_flight, stack_top - 64 * row, row + 1) == 0);
        CHECK(calls_find(&in_flight, stack_top - 64 * row + 8, row) == 0);
    }
}

TEST_CASE("of two calls with one name the newest is found", "[bpf]") {
    calls in_flight = calls_in_flight(3);
    in_flight.stack[2] = in_flight.stack[0];
    CHECK(calls_find(&in_flight, stack_top - 64, 1) == 3);
}

TEST_CASE("what is left behind the newest call is not found", "[bpf]") {
    calls in_flight = calls_in_flight(3);
    in_flight.depth = 2;
    CHECK(calls_find(&in_flight, stack_top - 64 * 3, 3) == 0);
    in_flight.depth = 0;
    CHECK(calls_find(&in_flight, stack_top - 64, 1) == 0);
}

TEST_CASE("removing a call moves the newer ones down", "[bpf]") {
    SECTION("the oldest") {
        calls in_flight = calls_in_flight(4);
        calls_remove(&in_flight, 0);
        CHECK(rows_of(in_flight) == std::vector<mt_u32>{2, 3, 4});
    }
    SECTION("one in the middle") {
        calls in_flight = calls_in_flight(4);
        calls_remove(&in_flight, 2);
        CHECK(rows_of(in_flight) == std::vector<mt_u32>{1, 2, 4});
    }
    SECTION("the newest") {
        calls in_flight = calls_in_flight(4);
        calls_remove(&in_flight, 3);
        CHECK(rows_of(in_flight) == std::vector<mt_u32>{1, 2, 3});
    }
    SECTION("from a full stack") {
        calls in_flight = calls_in_flight(MT_MAX_CALLS);
        calls_remove(&in_flight, 0);
        CHECK(in_flight.depth == MT_MAX_CALLS - 1);
        CHECK(in_flight.stack[MT_MAX_CALLS - 2].row == MT_MAX_CALLS);
    }
    SECTION("from an empty one") {
        calls in_flight{};
        calls_remove(&in_flight, 0);
        CHECK(in_flight.depth == 0);
    }
}

TEST_CASE("a call that waits for its return has the trampoline in its slot", "[bpf]") {
    const call waiting = call_of(stack_top, 1);
    CHECK(call_slot_is_intact(&waiting, trampoline, trampoline));
    CHECK_FALSE(call_slot_is_intact(&waiting, 0x401234, trampoline));
    // An address space without a trampoline has no call that waits, whatever its slot holds.
    CHECK_FALSE(call_slot_is_intact(&waiting, 0, 0));
}

TEST_CASE("a call without a return probe has its own return address in its slot", "[bpf]") {
    const mt_u32 flags = GENERATE(CALL_HAS_NO_RETURN, CALL_RETURN_MISSED);
    call unprobed = call_of(stack_top, 1);
    unprobed.return_address = 0x401234;
    CHECK_FALSE(call_slot_is_intact(&unprobed, 0x401234, trampoline));
    unprobed.flags = flags;
    CHECK(call_slot_is_intact(&unprobed, 0x401234, trampoline));
    CHECK(call_slot_is_intact(&unprobed, 0x401234, 0));
    CHECK_FALSE(call_slot_is_intact(&unprobed, 0x401238, trampoline));
    // Another function that jumped here, or a probe of its caller's, may have hijacked the slot.
    CHECK(call_slot_is_intact(&unprobed, trampoline, trampoline));
}

TEST_CASE("only a call from the delegate's own code is made on its behalf", "[bpf]") {
    constexpr mt_u64 function = 0x401000;
    const call delegate = delegate_of(function, 0x500000);
    CHECK(call_is_made_by_delegate(&delegate, function + 1));
    CHECK(call_is_made_by_delegate(&delegate, function + DELEGATE_REACH_BYTES - 1));
    CHECK_FALSE(call_is_made_by_delegate(&delegate, function + DELEGATE_REACH_BYTES));
    CHECK_FALSE(call_is_made_by_delegate(&delegate, function));
    CHECK_FALSE(call_is_made_by_delegate(&delegate, function - 1));
    CHECK_FALSE(call_is_made_by_delegate(&delegate, 0x7fff'0000'0000));
}
