// Ages from millions of blocks, of which only birth and call site are known.
#include "heap/live_blocks.hpp"

#include <algorithm>
#include <random>

#include "catch.hpp"
#include "heap/readings.hpp"
#include "heap/sampling.hpp"

using namespace memtrace;

namespace {

/// As figures.hpp says it.
Ages sorted_ages(std::vector<uint64_t> births_ns, uint64_t now_ns) {
    std::vector<uint64_t> ages;
    for (const uint64_t birth_ns : births_ns)
        ages.push_back(now_ns - std::min(now_ns, birth_ns));
    std::ranges::sort(ages);
    return {ages.front(), ages[(ages.size() - 1) / 2], ages.back()};
}

void check_ages(const std::vector<uint64_t>& births_ns, uint64_t now_ns) {
    const Ages expected = sorted_ages(births_ns, now_ns);
    const Ages ages = ages_of(births_ns, now_ns).value();
    INFO(births_ns.size() << " blocks");
    REQUIRE(ages.min_ns == expected.min_ns);
    REQUIRE(ages.median_ns == expected.median_ns);
    REQUIRE(ages.max_ns == expected.max_ns);
}

}  // namespace

TEST_CASE("ages of few blocks and of many are those of the sorted list", "[heap]") {
    std::mt19937_64 random(20261130);
    CHECK_FALSE(ages_of({}, 10));
    for (const size_t count : {1, 2, 3, 10, 4095, 4096, 4097, 20'000})
        for (const uint64_t spread : {uint64_t{1}, uint64_t{100}, uint64_t{1} << 20, uint64_t{1} << 62}) {
            std::vector<uint64_t> births_ns(count);
            for (uint64_t& birth_ns : births_ns)
                birth_ns = 5 + random() % spread;
            check_ages(births_ns, uint64_t{1} << 63);
            // Nearly all in one place, and one far away.
            births_ns.front() = 1;
            births_ns.back() = uint64_t{1} << 62;
            check_ages(births_ns, uint64_t{1} << 61);
        }
}

TEST_CASE("births by call site are the same, whether the blocks are whole or not", "[heap]") {
    std::mt19937_64 random(7);
    Snapshot whole;
    whole.time_ns = 1'000'000;
    Snapshot births = whole;
    for (int index = 0; index < 3000; ++index) {
        const uint64_t birth_ns = random() % 1'000'000;
        const auto site = static_cast<uint32_t>(random() % 50);
        whole.blocks.push_back({.address = random(), .size_bytes = 8, .birth_ns = birth_ns, .site = site});
        births.blocks.append({&birth_ns, 1}, {&site, 1});
    }
    REQUIRE(whole.blocks.are_whole());
    REQUIRE_FALSE(births.blocks.are_whole());
    for (const uint64_t older_ns : {0, 400'000}) {
        const BlocksBySite of_whole(whole, {}, older_ns);
        const BlocksBySite of_births(births, {}, older_ns);
        size_t count = 0;
        for (uint32_t site = 0; site < 60; ++site) {
            const auto expected = of_whole.blocks_of(site);
            REQUIRE(std::ranges::equal(expected, of_births.births_of(site), {}, &Block::birth_ns));
            REQUIRE(std::ranges::equal(of_whole.births_of(site), of_births.births_of(site)));
            REQUIRE(of_births.blocks_of(site).empty());
            for (const Block& block : expected)
                REQUIRE(whole.time_ns - block.birth_ns >= older_ns);
            count += expected.size();
        }
        CHECK((older_ns == 0 ? count == 3000 : count > 1500 && count < 2100));
    }
}
