// The laws of the mapping ledger: who owns which byte after every kind of event.
#include "heap/mappings.hpp"

#include "catch.hpp"
#include "mapping_events.hpp"

using namespace memtrace;
using namespace memtrace::test;

TEST_CASE("a mapping's size is rounded up to whole pages", "[heap]") {
    Events events;
    mt_mapping_event event = events.event(MT_EVENT_MAP, 0, 0, 5);
    event.size_bytes = page + 1;
    events.ledger.apply(event, false);
    CHECK(events.ledger.totals(1).live_bytes == 2 * page);
    CHECK(events.ledger.totals(1).mapped_bytes == 2 * page);
    CHECK(events.ledger.totals(1).live_count == 1);
    CHECK(events.ledger.site_totals(5).allocations == 1);
}

TEST_CASE("a mapping of huge pages is rounded up to whole huge pages", "[heap]") {
    Events events;
    mt_mapping_event event = events.event(MT_EVENT_MAP, 0, 1, 5);
    event.map_flags = 0x40000;
    events.ledger.apply(event, false);
    CHECK(events.ledger.totals(1).live_bytes == 2u << 20);
    event.address += 1u << 30;
    event.map_flags = 0x40000 | (30u << 26);
    events.ledger.apply(event, false);
    CHECK(events.ledger.totals(1).live_bytes == (2u << 20) + (1u << 30));
}

TEST_CASE("unmapping head, middle and tail takes exactly those pages", "[heap]") {
    Events events;
    events.map(0, 10, 5);
    events.unmap(0, 2);
    CHECK(events.live_pages(5) == 8);
    CHECK(events.only_mapping(5)->address == base + 2 * page);
    events.unmap(4, 2);
    CHECK(events.live_pages(5) == 6);
    events.unmap(9, 1);
    CHECK(events.live_pages(5) == 5);
    CHECK(events.live_count(5) == 1);
    CHECK(events.ledger.totals(1).unmapped_bytes == 5 * page);
    events.unmap(2, 7);
    CHECK(events.live_pages(5) == 0);
    CHECK(events.live_count(5) == 0);
    CHECK(events.ledger.site_totals(5).frees == 1);
    CHECK(events.ledger.live_mappings().empty());
    check_identity(events.ledger);
}

TEST_CASE("one munmap over several mappings takes from each its own", "[heap]") {
    Events events;
    events.map(0, 4, 5);
    events.map(4, 4, 6);
    events.map(8, 4, 7);
    events.unmap(2, 8);
    CHECK(events.live_pages(5) == 2);
    CHECK(events.live_pages(6) == 0);
    CHECK(events.live_pages(7) == 2);
    CHECK(events.ledger.totals(1).live_count == 2);
    CHECK(events.ledger.totals(1).unknown_unmaps == 0);
    check_identity(events.ledger);
}

TEST_CASE("a map over existing ranges takes them from their old site", "[heap]") {
    Events events;
    events.map(0, 10, 5);
    events.map(3, 4, 6);
    CHECK(events.live_pages(5) == 6);
    CHECK(events.live_pages(6) == 4);
    CHECK(events.ledger.totals(1).mapped_bytes == 14 * page);
    CHECK(events.ledger.totals(1).unmapped_bytes == 4 * page);
    events.map(0, 10, 7);
    CHECK(events.live_count(5) == 0);
    CHECK(events.live_count(6) == 0);
    CHECK(events.live_pages(7) == 10);
    check_identity(events.ledger);
}

TEST_CASE("a munmap that fails puts back owner, birth and counts", "[heap]") {
    Events events;
    events.map(0, 4, 5);
    events.map(4, 4, 6);
    const Block before = *events.only_mapping(5);
    events.unmap(0, 6);
    CHECK(events.live_pages(5) == 0);
    CHECK(events.live_pages(6) == 2);
    events.unmap_failed();
    CHECK(events.live_pages(5) == 4);
    CHECK(events.live_pages(6) == 4);
    CHECK(events.only_mapping(5)->birth_ns == before.birth_ns);
    CHECK(events.ledger.totals(1).unmapped_bytes == 0);
    CHECK(events.ledger.totals(1).live_count == 2);
    events.unmap_failed();
    CHECK(events.ledger.totals(1).live_bytes == 8 * page);
    check_identity(events.ledger);
}

TEST_CASE("what another thread has mapped meanwhile is not taken by a failed munmap", "[heap]") {
    Events events;
    events.map(0, 6, 5);
    events.unmap(0, 6);
    mt_mapping_event other = events.event(MT_EVENT_MAP, 2, 2, 6);
    other.header.tid = 11;
    events.ledger.apply(other, false);
    events.unmap_failed();
    CHECK(events.live_pages(5) == 4);
    CHECK(events.live_pages(6) == 2);
    check_identity(events.ledger);
}

TEST_CASE("nor is what another thread has mapped over the start or the end of the range", "[heap]") {
    Events events;
    events.map(2, 6, 5);
    events.unmap(2, 6);
    for (const uint64_t first_page : {0, 6}) {
        mt_mapping_event other = events.event(MT_EVENT_MAP, first_page, 4, 6);
        other.header.tid = 11;
        events.ledger.apply(other, false);
    }
    events.unmap_failed();
    CHECK(events.live_pages(5) == 2);
    CHECK(events.live_pages(6) == 8);
    CHECK(events.only_mapping(5)->address == base + 4 * page);
    check_identity(events.ledger);
}

TEST_CASE("only a munmap of the program counts as unknown, once a call", "[heap]") {
    Events events;
    events.map(0, 4, 5);
    events.unmap(2, 10);
    CHECK(events.ledger.totals(1).unknown_unmaps == 1);
    events.unmap(20, 5, true);
    CHECK(events.ledger.totals(1).unknown_unmaps == 1);
    events.unmap(20, 5);
    CHECK(events.ledger.totals(1).unknown_unmaps == 2);
    events.unmap_failed();
    CHECK(events.ledger.totals(1).unknown_unmaps == 1);
}

TEST_CASE("what the kernel must refuse changes nothing", "[heap]") {
    Events events;
    events.map(0, 4, 5);
    mt_mapping_event event = events.event(MT_EVENT_UNMAP, 0, 0, 0);
    events.ledger.apply(event, false);
    event.address += 1;
    event.size_bytes = page;
    events.ledger.apply(event, false);
    event.address = base;
    event.size_bytes = ~0ull;
    events.ledger.apply(event, false);
    CHECK(events.ledger.totals(1).live_bytes == 4 * page);
    CHECK(events.ledger.totals(1).unknown_unmaps == 0);
}

TEST_CASE("a mapping of the allocator belongs to no call site but ends what was there", "[heap]") {
    Events events;
    events.map(0, 4, 5);
    events.ledger.apply(events.event(MT_EVENT_MAP, 2, 4, 6), true);
    CHECK(events.live_pages(5) == 2);
    CHECK(events.live_pages(6) == 0);
    CHECK(events.ledger.totals(1).live_bytes == 2 * page);
    check_identity(events.ledger);
}

TEST_CASE("mremap that grows keeps the owner and gives the growth to its caller", "[heap]") {
    Events events;
    events.map(0, 4, 5);
    const uint64_t birth_ns = events.only_mapping(5)->birth_ns;
    events.remap(0, 4);
    CHECK(events.ledger.totals(1).live_bytes == 4 * page);
    events.remap_done(0, 4, 100, 7, 6);
    CHECK(events.live_pages(5) == 4);
    CHECK(events.live_pages(6) == 3);
    CHECK(events.only_mapping(5)->address == base + 100 * page);
    CHECK(events.only_mapping(5)->birth_ns == birth_ns);
    CHECK(events.only_mapping(6)->address == base + 104 * page);
    CHECK(events.ledger.totals(1).mapped_bytes == 7 * page);
    CHECK(events.ledger.totals(1).unmapped_bytes == 0);
    CHECK(events.ledger.totals(1).live_count == 2);
    check_identity(events.ledger);
}

TEST_CASE("mremap that shrinks in place unmaps the tail and makes no new mapping", "[heap]") {
    Events events;
    events.map(0, 4, 5);
    events.remap(0, 4);
    events.remap_done(0, 4, 0, 1, 6);
    CHECK(events.live_pages(5) == 1);
    CHECK(events.live_count(6) == 0);
    CHECK(events.ledger.totals(1).unmapped_bytes == 3 * page);
    events.unmap(1, 3);
    CHECK(events.ledger.totals(1).unknown_unmaps == 1);
    check_identity(events.ledger);
}

TEST_CASE("mremap onto a mapping takes the place from its old site", "[heap]") {
    Events events;
    events.map(0, 4, 5);
    events.map(10, 8, 6);
    events.remap(0, 4);
    events.remap_done(0, 4, 12, 4, 7);
    CHECK(events.live_pages(5) == 4);
    CHECK(events.live_pages(6) == 4);
    CHECK(events.live_pages(7) == 0);
    check_identity(events.ledger);
}

TEST_CASE("mremap of a part moves the part and leaves the rest", "[heap]") {
    Events events;
    events.map(0, 3, 5);
    events.map(3, 3, 6);
    events.remap(2, 2);
    events.remap_done(2, 2, 50, 2, 7);
    CHECK(events.live_pages(5) == 3);
    CHECK(events.live_pages(6) == 3);
    events.unmap(50, 1);
    CHECK(events.live_pages(5) == 2);
    CHECK(events.live_pages(6) == 3);
    CHECK(events.ledger.totals(1).unknown_unmaps == 0);
    check_identity(events.ledger);
}

TEST_CASE("mremap that fails puts back what it took", "[heap]") {
    Events events;
    events.map(0, 4, 5);
    events.remap(1, 2);
    events.remap_failed();
    CHECK(events.live_pages(5) == 4);
    events.unmap(1, 2);
    CHECK(events.ledger.totals(1).unknown_unmaps == 0);
    CHECK(events.live_pages(5) == 2);
    check_identity(events.ledger);
}

TEST_CASE("old size 0 and MREMAP_DONTUNMAP leave the old range and add the whole new one", "[heap]") {
    Events events;
    events.map(0, 4, 5);
    events.remap(0, 0);
    events.remap_done(0, 0, 20, 4, 6);
    CHECK(events.live_pages(5) == 4);
    CHECK(events.live_pages(6) == 4);
    events.remap(0, 4);
    events.remap_done(0, 4, 40, 4, 7, dontunmap | 1);
    CHECK(events.live_pages(5) == 4);
    CHECK(events.only_mapping(5)->address == base);
    CHECK(events.live_pages(7) == 4);
    check_identity(events.ledger);
}

TEST_CASE("an mremap whose first event was lost is applied from its last", "[heap]") {
    Events events;
    events.map(0, 4, 5);
    events.remap_done(0, 4, 2, 6, 6);
    CHECK(events.live_pages(5) == 4);
    CHECK(events.live_pages(6) == 2);
    CHECK(events.only_mapping(5)->address == base + 2 * page);
    check_identity(events.ledger);
}

TEST_CASE("an mremap whose last event was lost loses what it had", "[heap]") {
    Events events;
    events.map(0, 4, 5);
    events.remap(0, 4);
    CHECK(events.live_pages(5) == 4);
    CHECK(events.only_mapping(5)->address == base);
    events.map(10, 1, 6);
    CHECK(events.live_pages(5) == 0);
    CHECK(events.live_pages(6) == 1);
    check_identity(events.ledger);
}

TEST_CASE("an owner's end unmaps what it holds, and address spaces are apart", "[heap]") {
    Events events;
    events.map(0, 4, 5);
    mt_mapping_event other = events.event(MT_EVENT_MAP, 0, 2, 6);
    other.header.owner = 2;
    events.ledger.apply(other, false);
    CHECK(events.live_pages(5) == 4);
    events.ledger.end_owner(1);
    CHECK(events.ledger.totals(1).live_bytes == 0);
    CHECK(events.ledger.totals(1).live_count == 0);
    CHECK(events.ledger.totals(1).unmapped_bytes == 4 * page);
    CHECK(events.ledger.site_totals(5).live_bytes() == 0);
    CHECK(events.ledger.site_totals(5).frees == 1);
    CHECK(events.ledger.totals(2).live_bytes == 2 * page);
    events.ledger.end_owner(77);
}
