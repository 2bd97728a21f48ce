#include <array>

#include "catch.hpp"
#include "heap/site_aliases.hpp"

using namespace memtrace;

namespace {

constexpr std::array<uint64_t, 3> a_stack = {0x1000, 0x2000, 0x3000};
constexpr std::array<uint64_t, 3> other_stack = {0x1000, 0x2000, 0x4000};

Site site(uint32_t index, uint32_t row, uint64_t allocations) {
    return {.index = index, .owner = 1, .row = row, .flags = 0, .totals = {allocations * 10, allocations, 10, 1}};
}

}  // namespace

TEST_CASE("sites of one allocation that have the stack of another one become one site", "[heap]") {
    SiteAliases aliases;
    aliases.add_stack(4, 1, a_stack, false);
    aliases.add_stack(2, 1, a_stack, true);
    aliases.add_stack(7, 1, a_stack, true);
    aliases.add_stack(5, 1, other_stack, true);
    aliases.add_stack(6, 2, a_stack, true);
    aliases.add_stack(8, 1, a_stack, true);
    Snapshot snapshot;
    snapshot.sites = {site(2, 9, 3), site(4, 9, 5), site(5, 9, 1), site(6, 9, 1), site(7, 9, 2), site(8, 3, 1)};
    snapshot.blocks = {{0x10, 10, 0, 7, 1}, {0x20, 10, 0, 4, 1}, {0x30, 10, 0, 5, 1}, {0x40, 10, 0, 8, 1}};
    aliases.apply(snapshot);
    REQUIRE(snapshot.sites.size() == 4);
    CHECK(snapshot.sites[0].index == 2);
    CHECK(snapshot.sites[0].totals.allocations == 10);
    CHECK(snapshot.sites[0].totals.allocated_bytes == 100);
    CHECK(snapshot.sites[0].totals.frees == 3);
    CHECK(snapshot.sites[1].index == 5);
    CHECK(snapshot.sites[2].index == 6);
    CHECK(snapshot.sites[3].index == 8);
    CHECK(snapshot.blocks[0].site == 2);
    CHECK(snapshot.blocks[1].site == 2);
    CHECK(snapshot.blocks[2].site == 5);
    CHECK(snapshot.blocks[3].site == 8);
}

TEST_CASE("without sites of one allocation a snapshot stays as it is", "[heap]") {
    SiteAliases aliases;
    aliases.add_stack(1, 1, a_stack, false);
    aliases.add_stack(2, 1, a_stack, false);
    Snapshot snapshot;
    snapshot.sites = {site(1, 9, 3), site(2, 9, 5)};
    aliases.apply(snapshot);
    CHECK(snapshot.sites.size() == 2);
}
