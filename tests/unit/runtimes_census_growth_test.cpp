// Which size grows, from made-up censuses.
#include "catch.hpp"
#include "runtimes/census_growth.hpp"

using namespace memtrace;

namespace {

/// A census of so many chunks of each size in use.
GlibcCensus census(std::initializer_list<std::pair<uint64_t, uint64_t>> counts) {
    GlibcCensus made_up;
    for (const auto& [chunk_bytes, chunks] : counts) {
        made_up.sizes.push_back(
            {.chunk_bytes = chunk_bytes, .in_use = {.chunks = chunks, .size_bytes = chunks * chunk_bytes}, .free = {}});
        made_up.in_use.chunks += chunks;
        made_up.in_use.size_bytes += chunks * chunk_bytes;
    }
    return made_up;
}

}  // namespace

TEST_CASE("the size that has more than half of what has grown stands out", "[glibc]") {
    CensusHistory history;
    const CensusGrowth first = history.add(census({{208, 1000}, {4112, 100}, {64, 5000}}));
    CHECK(first.growth_bytes == 0);
    CHECK(first.pattern == GrowthPattern::none);
    const CensusGrowth growth = history.add(census({{208, 11'000}, {4112, 120}, {64, 4000}}));
    CHECK(growth.pattern == GrowthPattern::one_size);
    CHECK(growth.growth_bytes == 10'000 * 208 + 20 * 4112 - 1000 * 64);
    CHECK(growth.risen_bytes == 10'000 * 208 + 20 * 4112);
    REQUIRE(growth.sizes.size() == 3);
    CHECK(growth.sizes[0].chunk_bytes == 208);
    CHECK(growth.sizes[0].growth_bytes == 10'000 * 208);
    CHECK(growth.sizes[0].growth_blocks == 10'000);
    CHECK(growth.sizes[0].has_grown_each_time);
    CHECK(growth.sizes[2].growth_bytes == -1000 * 64);
    CHECK(!growth.sizes[2].has_grown_each_time);
}

TEST_CASE("sizes that grow alike are mixed", "[glibc]") {
    CensusHistory history;
    history.add(census({{208, 0}, {416, 0}, {832, 0}}));
    CHECK(history.add(census({{208, 4000}, {416, 2000}, {832, 1000}})).pattern == GrowthPattern::mixed);
}

TEST_CASE("a heap that breathes does not grow", "[glibc]") {
    CensusHistory history;
    history.add(census({{208, 1000}}));
    CHECK(history.add(census({{208, 1010}})).pattern == GrowthPattern::none);
    CHECK(history.add(census({{208, 900}})).pattern == GrowthPattern::none);
}

TEST_CASE("growth counts from the first census, also of sizes that come and go", "[glibc]") {
    CensusHistory history;
    history.add(census({{208, 1000}}));
    history.add(census({{208, 900}, {1040, 500}}));
    const CensusGrowth growth = history.add(census({{1040, 1500}}));
    REQUIRE(growth.sizes.size() == 2);
    CHECK(growth.sizes[0].chunk_bytes == 1040);
    CHECK(growth.sizes[0].growth_bytes == 1500 * 1040);
    CHECK(growth.sizes[0].has_grown_each_time);
    CHECK(growth.sizes[1].growth_bytes == -1000 * 208);
    CHECK(growth.pattern == GrowthPattern::one_size);
}
