// What fork copies and what is shared counts once where processes are taken together, as long as one of them has it.
#include <map>
#include <random>
#include <set>

#include "catch.hpp"
#include "heap/mappings.hpp"
#include "mapping_events.hpp"

using namespace memtrace;

namespace {

constexpr uint64_t page = 4096;
constexpr uint64_t base = 0x7f0000000000;

mt_mapping_event event_of(uint32_t type, uint32_t owner, uint64_t start, uint64_t pages, uint32_t site = 0) {
    static uint64_t time_ns = 0;
    mt_mapping_event event{};
    event.header = {type, owner, ++time_ns, owner, owner};
    event.address = base + start * page;
    event.size_bytes = pages * page;
    event.site = site;
    return event;
}

/// Bytes that `owners` have together, each once.
uint64_t together(const MappingLedger& ledger, const std::vector<uint32_t>& owners) {
    uint64_t live_bytes = 0;
    for (const uint32_t owner : owners)
        live_bytes += ledger.totals(owner).live_bytes;
    for (const MappingCorrection& correction : ledger.corrections(owners))
        live_bytes += correction.held_bytes - correction.twice_bytes;
    return live_bytes;
}

}  // namespace

TEST_CASE("a child's mappings are inherited, and what it unmaps is its own affair", "[heap]") {
    MappingLedger ledger;
    ledger.apply(event_of(MT_EVENT_MAP, 1, 0, 10, 7), false);
    ledger.fork(1, 2);
    CHECK(ledger.totals(2).inherited_bytes == 10 * page);
    CHECK(ledger.totals(2).live_bytes == 0);
    CHECK(ledger.live_mappings().size() == 1);
    CHECK(together(ledger, {1, 2}) == 10 * page);

    ledger.apply(event_of(MT_EVENT_UNMAP, 2, 2, 4), false);
    CHECK(ledger.totals(2).inherited_bytes == 6 * page);
    CHECK(ledger.totals(2).unmapped_bytes == 0);
    CHECK(ledger.totals(2).unknown_unmaps == 0);
    CHECK(ledger.totals(1).live_bytes == 10 * page);
    CHECK(ledger.site_totals(7).live_bytes() == 10 * page);
    CHECK(together(ledger, {1, 2}) == 10 * page);

    ledger.apply(event_of(MT_EVENT_UNMAP, 1, 0, 10), false);
    CHECK(ledger.site_totals(7).live_bytes() == 0);
    CHECK(together(ledger, {1, 2}) == 6 * page);
    const auto corrections = ledger.corrections({1, 2});
    REQUIRE(corrections.size() == 1);
    CHECK(corrections[0].site == 7);
    CHECK(corrections[0].held_bytes == 6 * page);
    CHECK(corrections[0].held_count == 1);
    ledger.end_owner(2);
    CHECK(together(ledger, {1, 2}) == 0);
}

TEST_CASE("an unmap of inherited pages that fails gives them back", "[heap]") {
    MappingLedger ledger;
    ledger.apply(event_of(MT_EVENT_MAP, 1, 0, 10, 7), false);
    ledger.fork(1, 2);
    ledger.apply(event_of(MT_EVENT_UNMAP, 2, 0, 10), false);
    CHECK(ledger.totals(2).inherited_bytes == 0);
    ledger.apply(event_of(MT_EVENT_UNMAP_FAILED, 2, 0, 10), false);
    CHECK(ledger.totals(2).inherited_bytes == 10 * page);
    CHECK(ledger.site_totals(7).live_bytes() == 10 * page);
}

TEST_CASE("what two processes map of one object counts once for each page", "[heap]") {
    MappingLedger ledger;
    ledger.apply(event_of(MT_EVENT_MAP, 1, 0, 10, 7), false, {1, 55, 0});
    ledger.apply(event_of(MT_EVENT_MAP, 2, 100, 10, 8), false, {1, 55, 5 * page});
    ledger.apply(event_of(MT_EVENT_MAP, 3, 0, 10, 9), false, {1, 56, 0});
    CHECK(together(ledger, {1, 2}) == 15 * page);
    CHECK(together(ledger, {1, 3}) == 20 * page);
    CHECK(together(ledger, {2}) == 10 * page);
    const auto corrections = ledger.corrections({1, 2, 3});
    REQUIRE(corrections.size() == 1);
    CHECK(corrections[0].site == 8);
    CHECK(corrections[0].twice_bytes == 5 * page);
    CHECK(corrections[0].twice_count == 0);
    ledger.apply(event_of(MT_EVENT_UNMAP, 1, 0, 7), false);
    CHECK(together(ledger, {1, 2}) == 10 * page);
    ledger.apply(event_of(MT_EVENT_MAP, 2, 200, 2, 8), false, {1, 55, 8 * page});
    CHECK(together(ledger, {1, 2}) == 10 * page);
}

TEST_CASE("forks, maps and unmaps at random are what sets of pages say", "[heap]") {
    std::mt19937 random(11);
    for (int round = 0; round < 20; ++round) {
        MappingLedger ledger;
        using Page = std::pair<uint64_t, uint64_t>;                       // object, page in it
        std::map<uint32_t, std::map<uint64_t, Page>> spaces = {{1, {}}};  // by address
        uint64_t last_object = 1000;
        for (int step = 0; step < 300; ++step) {
            const auto owner = static_cast<uint32_t>(1 + random() % spaces.size());
            const uint64_t start = random() % 60;
            const uint64_t count = 1 + random() % 12;
            const auto what = random() % 10;
            if (what == 0 && spaces.size() < 6) {
                const auto child = static_cast<uint32_t>(spaces.size() + 1);
                ledger.fork(owner, child);
                spaces[child] = spaces[owner];
            } else if (what < 6) {
                const bool is_shared = random() % 2 == 0;
                const uint64_t object = is_shared ? 1 + random() % 2 : ++last_object;
                const uint64_t offset = is_shared ? random() % 20 : 0;
                const SharedMapping shared = is_shared ? SharedMapping{1, object, offset * page} : SharedMapping{};
                ledger.apply(event_of(MT_EVENT_MAP, owner, start, count, owner), false, shared);
                for (uint64_t index = 0; index < count; ++index)
                    spaces[owner][start + index] = {object, offset + index};
            } else {
                ledger.apply(event_of(MT_EVENT_UNMAP, owner, start, count), false);
                for (uint64_t index = 0; index < count; ++index)
                    spaces[owner].erase(start + index);
            }
            for (const std::vector<uint32_t>& owners : std::vector<std::vector<uint32_t>>{{1, 2, 3, 4, 5, 6}, {1, 3}}) {
                std::set<Page> pages;
                for (const uint32_t each : owners)
                    if (const auto space = spaces.find(each); space != spaces.end())
                        for (const auto& [address, one] : space->second)
                            pages.insert(one);
                REQUIRE(together(ledger, owners) == pages.size() * page);
            }
        }
    }
}
