#include <random>
#include <vector>

#include "catch.hpp"
#include "kernel/region_allocator.hpp"

using namespace memtrace;

TEST_CASE("a region that is given back is handed out again, whole with its free neighbours", "[kernel]") {
    RegionAllocator regions(100);
    CHECK(regions.take(40) == 0u);
    CHECK(regions.take(30) == 40u);
    CHECK(regions.take(30) == 70u);
    CHECK_FALSE(regions.take(1));
    CHECK(regions.take(0));
    regions.give_back(0, 40);
    regions.give_back(70, 30);
    CHECK_FALSE(regions.take(41));
    regions.give_back(40, 30);
    CHECK(regions.take(100) == 0u);
    CHECK_FALSE(RegionAllocator(0).take(1));
}

TEST_CASE("no two regions in use share an element, in any order of taking and giving back", "[kernel]") {
    constexpr uint32_t size = 257;
    struct Region {
        uint32_t first;
        uint32_t count;
    };
    std::minstd_rand random(7);
    RegionAllocator regions(size);
    std::vector<bool> is_used(size, false);
    std::vector<Region> taken;
    for (int step = 0; step < 5000; ++step) {
        const uint32_t count = 1 + static_cast<uint32_t>(random()) % 40;
        const auto first = regions.take(count);
        if (first) {
            for (uint32_t index = *first; index < *first + count; ++index) {
                REQUIRE_FALSE(is_used.at(index));
                is_used[index] = true;
            }
            taken.push_back({*first, count});
        }
        if (!first || random() % 2 == 0) {
            REQUIRE_FALSE(taken.empty());
            std::swap(taken[random() % taken.size()], taken.back());
            const Region region = taken.back();
            taken.pop_back();
            regions.give_back(region.first, region.count);
            std::fill_n(is_used.begin() + region.first, region.count, false);
        }
    }
    for (const Region& region : taken)
        regions.give_back(region.first, region.count);
    CHECK(regions.take(size) == 0u);
}
