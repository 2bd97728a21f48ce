// Random events, against a ledger of single pages.
#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "catch.hpp"
#include "heap/mappings.hpp"
#include "mapping_events.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

/// For each page its mapping, and nothing cleverer.
struct PageOracle {
    static constexpr uint64_t pages = 64;
    struct Cell {
        uint32_t site = 0;
        uint64_t mapping = 0;  // 0: unmapped
        bool is_reserved = false;
    };
    std::vector<Cell> cells = std::vector<Cell>(pages);
    uint64_t last_mapping = 0;

    void map(uint64_t first, uint64_t count, uint32_t site, bool is_reserved = false) {
        if (count == 0) return;
        ++last_mapping;
        for (uint64_t index = first; index < first + count; ++index)
            cells[index] = {site, last_mapping, is_reserved};
    }
    void protect(uint64_t first, uint64_t count, bool is_reserved) {
        for (uint64_t index = first; index < first + count; ++index)
            if (cells[index].mapping != 0) cells[index].is_reserved = is_reserved;
    }
    void unmap(uint64_t first, uint64_t count) {
        for (uint64_t index = first; index < first + count; ++index)
            cells[index] = {};
    }
    void remap(uint64_t from, uint64_t old_count, uint64_t to, uint64_t new_count, uint32_t site, bool stays) {
        std::vector<Cell> moved(cells.begin() + static_cast<long>(from),
                                cells.begin() + static_cast<long>(from + old_count));
        if (!stays) unmap(from, old_count);
        const uint64_t kept = stays ? 0 : std::min(old_count, new_count);
        std::copy_n(moved.begin(), kept, cells.begin() + static_cast<long>(to));
        // What grows is as the last page that was there.
        const auto last =
            std::find_if(moved.rbegin(), moved.rend(), [](const Cell& cell) { return cell.mapping != 0; });
        map(to + kept, new_count - kept, site, kept > 0 && last != moved.rend() && last->is_reserved);
    }
};

void check_against(const PageOracle& oracle, const MappingLedger& ledger) {
    std::map<uint32_t, uint64_t> pages_of_site;
    std::map<uint64_t, uint64_t> lowest_of_mapping;
    uint64_t reserved_pages = 0;
    for (uint64_t index = 0; index < PageOracle::pages; ++index) {
        const PageOracle::Cell& cell = oracle.cells[index];
        if (cell.mapping == 0) continue;
        reserved_pages += cell.is_reserved ? 1 : 0;
        ++pages_of_site[cell.site];
        lowest_of_mapping.try_emplace(cell.mapping, base + index * page);
    }
    for (uint32_t site = 1; site <= 6; ++site)
        REQUIRE(ledger.site_totals(site).live_bytes() == pages_of_site[site] * page);
    REQUIRE(ledger.totals(1).parts.reserved_bytes == reserved_pages * page);
    std::multiset<uint64_t> expected;
    for (const auto& [mapping, address] : lowest_of_mapping)
        expected.insert(address);
    std::multiset<uint64_t> found;
    for (const Block& block : ledger.live_mappings())
        found.insert(block.address);
    REQUIRE(found == expected);
    check_identity(ledger);
}

}  // namespace

TEST_CASE("random sequences leave every page with the owner that a page by page ledger gives it", "[heap]") {
    std::mt19937 random(20261129);
    const auto below = [&](uint64_t limit) { return random() % limit; };
    for (int run = 0; run < 60; ++run) {
        Events events;
        PageOracle oracle;
        for (int step = 0; step < 200; ++step) {
            const auto site = static_cast<uint32_t>(1 + below(6));
            const uint64_t first = below(40);
            const uint64_t count = 1 + below(16);
            const uint64_t action = below(7);
            if (action == 0) {
                events.map(first, count, site);
                oracle.map(first, count, site);
            } else if (action == 1) {
                events.unmap(first, count);
                oracle.unmap(first, count);
            } else if (action == 2) {
                events.unmap(first, count);
                events.unmap_failed();
            } else if (action == 3) {
                events.remap(first, count);
                events.remap_failed();
            } else if (action == 4) {
                const bool is_reserved = below(2) == 0;
                events.protect(first, count, is_reserved ? 0 : 1);
                oracle.protect(first, count, is_reserved);
            } else {
                // The kernel refuses to move onto an overlapping range; growing in place is no move.
                const uint64_t new_count = 1 + below(16);
                const bool in_place = below(2) == 0;
                const bool stays = !in_place && below(4) == 0;
                const uint64_t to = in_place ? first : below(40);
                const uint64_t size = stays ? count : new_count;
                if (!in_place && to < first + count && first < to + size) continue;
                events.remap(first, count);
                events.remap_done(first, count, to, size, site, stays ? dontunmap : 0);
                oracle.remap(first, count, to, size, site, stays);
            }
            check_against(oracle, events.ledger);
        }
    }
}
