// Mapping events of one address space (owner 1), made for the tests of the mapping ledger, and what always holds for
// it.
#pragma once

#include <optional>

#include "catch.hpp"
#include "heap/mappings.hpp"

namespace memtrace::test {

inline constexpr uint64_t page = 4096;
inline constexpr uint64_t base = 0x7f0000000000;
inline constexpr uint32_t dontunmap = 4;

struct Events {
    MappingLedger ledger;
    uint64_t time_ns = 100;

    mt_mapping_event event(uint32_t type, uint64_t first_page, uint64_t pages, uint32_t site) {
        mt_mapping_event result{};
        result.header = {type, 1, ++time_ns, 10, 10};
        result.address = base + first_page * page;
        result.size_bytes = pages * page;
        result.site = site;
        result.protection = 3;    // PROT_READ | PROT_WRITE
        result.map_flags = 0x22;  // MAP_PRIVATE | MAP_ANONYMOUS
        return result;
    }
    void map(uint64_t first_page, uint64_t pages, uint32_t site) {
        ledger.apply(event(MT_EVENT_MAP, first_page, pages, site), false);
    }
    void unmap(uint64_t first_page, uint64_t pages, bool caller_is_allocator = false) {
        ledger.apply(event(MT_EVENT_UNMAP, first_page, pages, 0), caller_is_allocator);
    }
    void unmap_failed() { ledger.apply(event(MT_EVENT_UNMAP_FAILED, 0, 0, 0), false); }
    void map_with(uint64_t first_page, uint64_t pages, uint32_t site, uint32_t protection, uint32_t map_flags,
                  bool is_allocators = false) {
        mt_mapping_event mapped = event(MT_EVENT_MAP, first_page, pages, site);
        mapped.protection = protection;
        mapped.map_flags = map_flags;
        ledger.apply(mapped, is_allocators);
    }
    void protect(uint64_t first_page, uint64_t pages, uint32_t protection) {
        mt_mapping_event protection_event = event(MT_EVENT_PROTECT, first_page, pages, 0);
        protection_event.protection = protection;
        ledger.apply(protection_event, false);
    }
    void discard(uint64_t first_page, uint64_t pages) {
        ledger.apply(event(MT_EVENT_DISCARD, first_page, pages, 0), false);
    }
    void detach(uint64_t first_page) { ledger.apply(event(MT_EVENT_DETACH, first_page, 0, 0), false); }
    uint64_t reserved_pages() const { return ledger.totals(1).parts.reserved_bytes / page; }
    void remap(uint64_t old_page, uint64_t old_pages) {
        mt_mapping_event start = event(MT_EVENT_REMAP, 0, 0, 0);
        start.old_address = base + old_page * page;
        start.old_size_bytes = old_pages * page;
        ledger.apply(start, false);
    }
    void remap_done(uint64_t old_page, uint64_t old_pages, uint64_t new_page, uint64_t new_pages, uint32_t site,
                    uint32_t flags = 0) {
        mt_mapping_event done = event(MT_EVENT_REMAP_DONE, new_page, new_pages, site);
        done.old_address = base + old_page * page;
        done.old_size_bytes = old_pages * page;
        done.map_flags = flags;
        ledger.apply(done, false);
    }
    void remap_failed() { ledger.apply(event(MT_EVENT_REMAP_FAILED, 0, 0, 0), false); }

    uint64_t live_pages(uint32_t site) const { return ledger.site_totals(site).live_bytes() / page; }
    uint64_t live_count(uint32_t site) const { return ledger.site_totals(site).live_blocks(); }
    std::optional<Block> only_mapping(uint32_t site) const {
        std::optional<Block> found;
        for (const Block& block : ledger.live_mappings()) {
            if (block.site != site) continue;
            if (found) return std::nullopt;
            found = block;
        }
        return found;
    }
};

inline void check_identity(const MappingLedger& ledger) {
    const MappingTotals totals = ledger.totals(1);
    uint64_t live_bytes = 0;
    uint64_t live_count = 0;
    for (const auto& [site, sums] : ledger.sites()) {
        REQUIRE(sums.freed_bytes <= sums.allocated_bytes);
        REQUIRE(sums.frees <= sums.allocations);
        live_bytes += sums.live_bytes();
        live_count += sums.live_blocks();
    }
    REQUIRE(totals.mapped_bytes - totals.unmapped_bytes == totals.live_bytes);
    REQUIRE(live_bytes == totals.live_bytes);
    REQUIRE(live_count == totals.live_count);
    uint64_t listed_bytes = 0;
    for (const Block& block : ledger.live_mappings())
        listed_bytes += block.size_bytes;
    REQUIRE(listed_bytes == totals.live_bytes);
    REQUIRE(ledger.live_mappings().size() == totals.live_count);
}

}  // namespace memtrace::test
