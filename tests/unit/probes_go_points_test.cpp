// Where the probe of a Go function goes.
#include <array>

#include "catch.hpp"
#include "probes/go_points.hpp"

using namespace memtrace;

TEST_CASE("a Go function is probed on the jump of its stack check", "[probes][go]") {
    // cmp 0x10(%r14),%rsp; jbe; sub $0x78,%rsp: runtime.mallocgc of Go 1.19.
    constexpr std::array<uint8_t, 14> small = {0x49, 0x3b, 0x66, 0x10, 0x0f, 0x86, 0xe6,
                                               0x08, 0x00, 0x00, 0x48, 0x83, 0xec, 0x78};
    const auto checked = place_go_probe(small);
    REQUIRE(checked);
    CHECK(checked->offset == 4);
    CHECK(checked->is_emulated);
    // lea -0x78(%rsp),%r12; cmp 0x10(%r14),%r12; jbe: a frame that is larger.
    constexpr std::array<uint8_t, 11> large = {0x4c, 0x8d, 0x64, 0x24, 0x88, 0x4d, 0x3b, 0x66, 0x10, 0x76, 0x10};
    CHECK(place_go_probe(large)->offset == 9);
    // sub $0x78,%rsp: one that must not grow the stack has no check, and no jump.
    constexpr std::array<uint8_t, 4> unchecked = {0x48, 0x83, 0xec, 0x78};
    CHECK(place_go_probe(unchecked)->offset == 0);
    CHECK(!place_go_probe(unchecked)->is_emulated);
    // jbe without a check: not the function's own stack.
    constexpr std::array<uint8_t, 6> other = {0x48, 0x39, 0xd8, 0x76, 0x10, 0xc3};
    CHECK(place_go_probe(other)->offset == 0);
    CHECK(!place_go_probe({}));
}
