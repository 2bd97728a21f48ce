// What of the mappings is reserved, of files, shared, a stack, or the allocator's; and the ledger after lost events.
#include "catch.hpp"
#include "heap/mappings.hpp"
#include "mapping_events.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

constexpr uint32_t none = 0;
constexpr uint32_t writable = 3;
constexpr uint32_t private_anonymous = 0x22;
constexpr uint32_t private_file = 2;
constexpr uint32_t shared = 1;
constexpr uint32_t noreserve = 0x4000;
constexpr uint32_t stack = 0x20000;

MappedRange mapped(uint64_t first_page, uint64_t pages, MappingBacking backing = MappingBacking::anonymous) {
    return {base + first_page * page, base + (first_page + pages) * page, backing};
}

std::vector<std::pair<uint64_t, uint64_t>> pages_of(const MappingLedger& ledger, MappingUse use) {
    std::vector<std::pair<uint64_t, uint64_t>> ranges;
    for (const KnownRange& range : ledger.ranges(1))
        if (range.use == use) ranges.emplace_back((range.start - base) / page, (range.end - range.start) / page);
    return ranges;
}

using Pages = std::vector<std::pair<uint64_t, uint64_t>>;

}  // namespace

TEST_CASE("what cannot be touched is reserved, page by page", "[heap]") {
    Events events;
    events.map_with(0, 16, 7, none, private_anonymous);
    CHECK(events.reserved_pages() == 16);
    CHECK(events.live_pages(7) == 16);
    events.protect(4, 8, writable);
    events.protect(6, 2, none);
    CHECK(events.reserved_pages() == 10);
    CHECK(events.ledger.site_parts(7).reserved_bytes == 10 * page);
    events.unmap(0, 5);
    CHECK(events.reserved_pages() == 6);
    events.unmap_failed();
    CHECK(events.reserved_pages() == 10);
    events.map(14, 4, 8);
    CHECK(events.reserved_pages() == 8);
    check_identity(events.ledger);
    events.protect(0, 100, writable);
    CHECK(events.reserved_pages() == 0);
    // One piece again.
    CHECK(pages_of(events.ledger, MappingUse::program) == Pages{{0, 18}});
}

TEST_CASE("a mapping without reserved swap is a reservation until it is made accessible", "[heap]") {
    Events events;
    events.map_with(0, 8, 7, writable, private_anonymous | noreserve);
    CHECK(events.reserved_pages() == 8);
    events.protect(2, 3, writable);
    CHECK(events.reserved_pages() == 5);
}

TEST_CASE("a reservation that mremap moves and grows stays one", "[heap]") {
    Events events;
    events.map_with(0, 8, 7, none, private_anonymous);
    events.remap(0, 8);
    CHECK(events.reserved_pages() == 8);
    events.remap_done(0, 8, 100, 12, 9);
    CHECK(events.reserved_pages() == 12);
    CHECK(events.ledger.site_parts(9).reserved_bytes == 4 * page);
    check_identity(events.ledger);
}

TEST_CASE("files, shared memory and stacks are told apart", "[heap]") {
    Events events;
    events.map_with(0, 2, 1, writable, private_file);
    events.map_with(10, 3, 2, writable, shared);
    events.map_with(20, 4, 3, writable, private_anonymous | stack);
    events.map(30, 5, 4);
    const MappingParts parts = events.ledger.totals(1).parts;
    CHECK(parts.file_bytes == 2 * page);
    CHECK(parts.shared_bytes == 3 * page);
    CHECK(parts.stack_bytes == 4 * page);
    CHECK(events.ledger.totals(1).live_bytes == 14 * page);
    CHECK(pages_of(events.ledger, MappingUse::stack) == Pages{{20, 4}});
    events.unmap(0, 25);
    CHECK(events.ledger.totals(1).parts.file_bytes == 0);
    CHECK(events.ledger.totals(1).parts.stack_bytes == 0);
    events.ledger.end_owner(1);
    CHECK(events.ledger.totals(1).parts.shared_bytes == 0);
}

TEST_CASE("what an allocator maps is in no sum and at no call site, and known all the same", "[heap]") {
    Events events;
    events.map_with(0, 10, 0, writable, private_anonymous, true);
    events.map(20, 1, 7);
    CHECK(events.ledger.totals(1).live_bytes == page);
    CHECK(events.ledger.live_mappings().size() == 1);
    CHECK_FALSE(events.ledger.sites().contains(0));
    CHECK(pages_of(events.ledger, MappingUse::allocator) == Pages{{0, 10}});
    events.unmap(2, 3, true);
    CHECK(pages_of(events.ledger, MappingUse::allocator) == Pages{{0, 2}, {5, 5}});
    events.map(5, 1, 7);
    CHECK(pages_of(events.ledger, MappingUse::program) == Pages{{5, 1}, {20, 1}});
    CHECK(events.ledger.totals(1).unmapped_bytes == 0);
    check_identity(events.ledger);
    events.ledger.fork(1, 2);
    CHECK(events.ledger.totals(2).inherited_bytes == 2 * page);
    CHECK(events.ledger.ranges(2).size() == events.ledger.ranges(1).size());
    events.ledger.end_owner(1);
    CHECK(events.ledger.totals(1).unmapped_bytes == 2 * page);
}

TEST_CASE("pages that are given back stay mapped", "[heap]") {
    Events events;
    events.map(0, 10, 7);
    events.map_with(20, 10, 0, writable, private_anonymous, true);
    events.discard(8, 20);
    CHECK(events.ledger.totals(1).discarded_bytes == 2 * page);
    CHECK(events.live_pages(7) == 10);
}

TEST_CASE("a segment that is detached goes as it was attached, holes and all", "[heap]") {
    Events events;
    events.map_with(0, 10, 7, writable, shared);
    events.map_with(10, 5, 8, writable, shared);
    events.unmap(3, 2);
    events.map(4, 1, 9);
    events.detach(0);
    CHECK(events.live_pages(7) == 0);
    CHECK(events.live_pages(8) == 5);
    CHECK(events.live_pages(9) == 1);
    events.unmap_failed();
    CHECK(events.live_pages(7) == 8);
    CHECK(events.ledger.totals(1).unknown_unmaps == 0);
    events.detach(10);
    CHECK(events.live_pages(8) == 0);
    // From before the attach.
    events.detach(100);
    CHECK(events.ledger.totals(1).unknown_unmaps == 1);
    check_identity(events.ledger);
}

TEST_CASE("after lost events what the kernel does not list is gone", "[heap]") {
    Events events;
    events.map(0, 10, 7);
    events.map(20, 10, 8);
    events.map_with(40, 10, 9, writable, shared);
    events.map_with(60, 10, 0, writable, private_anonymous, true);
    const std::vector<MappedRange> now = {mapped(0, 4), mapped(6, 20), mapped(40, 10), mapped(65, 100)};
    CHECK(events.ledger.resync(1, now) == (2 + 4 + 10 + 5) * page);
    CHECK(events.live_pages(7) == 8);
    CHECK(events.live_pages(8) == 6);
    // Private memory is there now.
    CHECK(events.live_pages(9) == 0);
    CHECK(pages_of(events.ledger, MappingUse::allocator) == Pages{{65, 5}});
    check_identity(events.ledger);
    CHECK(events.ledger.resync(1, now) == 0);
    CHECK(events.ledger.resync(77, now) == 0);
}
