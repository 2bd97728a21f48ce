// Figures of processes against the previous report and the baseline, and the laws that hold at every report.
#include "heap/history.hpp"

#include <random>

#include "catch.hpp"
#include "heap/ranking.hpp"

using namespace memtrace;

namespace {

constexpr pid_t pid = 100;
constexpr uint64_t second = 1'000'000'000;

AddressSpace space(uint32_t owner, uint64_t first_seen_ns, uint64_t ended_ns = 0) {
    AddressSpace result;
    result.owner = owner;
    result.pid = pid;
    result.first_seen_ns = first_seen_ns;
    result.ended_ns = ended_ns;
    return result;
}

Site site(uint32_t index, uint32_t owner, SiteTotals totals) {
    return {index, owner, 1, MT_SITE_READY, totals};
}

Snapshot snapshot_at(uint64_t time_ns, std::vector<Site> sites) {
    Snapshot snapshot;
    snapshot.time_ns = time_ns;
    snapshot.address_spaces = {space(1, 0)};
    snapshot.sites = std::move(sites);
    return snapshot;
}

/// That of the first process that joined.
ScopeFigures figures_of(const History& history, const Snapshot& snapshot, const FigureOptions& options = {},
                        const MappingLedger& ledger = {}) {
    return history.figures(snapshot, ledger, options).at(1);
}

ProcessIdentity identity(pid_t pid_of_process) {
    ProcessIdentity result;
    result.pid = pid_of_process;
    return result;
}

/// With one process, `pid`.
History history_since(uint64_t attach_time_ns) {
    History history(attach_time_ns);
    history.update(std::vector{identity(pid)});
    return history;
}

KeptSite keep(uint32_t site) {
    return {site, {1, site}};
}

const SiteFigures& site_of(const ScopeFigures& figures, uint32_t index) {
    for (const SiteFigures& found : figures.sites)
        if (found.site == index) return found;
    FAIL("site " << index << " is missing");
    return figures.sites.front();
}

void check_laws(const ScopeFigures& figures) {
    const HeapFigures& heap = figures.heap;
    REQUIRE(heap.totals.allocated_bytes - heap.totals.freed_bytes - heap.ended_bytes == heap.live_bytes);
    REQUIRE(heap.totals.allocations - heap.totals.frees - heap.ended_blocks == heap.live_blocks);
    REQUIRE(heap.peak_live_bytes >= heap.live_bytes);
    SiteTotals sums;
    uint64_t live_bytes = 0;
    uint64_t live_blocks = 0;
    for (const SiteFigures& site : figures.sites) {
        if (site.is_mapping) continue;
        sums += site.totals;
        live_bytes += site.live_bytes;
        live_blocks += site.live_blocks;
    }
    REQUIRE(sums.allocated_bytes == heap.totals.allocated_bytes);
    REQUIRE(sums.allocations == heap.totals.allocations);
    REQUIRE(live_bytes == heap.live_bytes);
    REQUIRE(live_blocks == heap.live_blocks);
}

}  // namespace

TEST_CASE("growth is since the previous report and since the attach", "[heap]") {
    History history = history_since(1 * second);
    const Snapshot first = snapshot_at(6 * second, {site(3, 1, {1000, 10, 200, 2})});
    ScopeFigures figures = figures_of(history, first);
    CHECK(figures.heap.live_bytes == 800);
    CHECK(figures.heap.growth_bytes == 800);
    CHECK(figures.interval.duration_ns == 5 * second);
    history.advance(first, {});

    const Snapshot next = snapshot_at(8 * second, {site(3, 1, {1500, 15, 1200, 12}), site(4, 1, {64, 1, 0, 0})});
    figures = figures_of(history, next);
    CHECK(site_of(figures, 3).growth_bytes == -500);
    CHECK(site_of(figures, 3).growth_since_baseline_bytes == 300);
    CHECK(site_of(figures, 3).allocated_since_previous_bytes == 500);
    CHECK(site_of(figures, 4).growth_bytes == 64);
    CHECK(figures.heap.growth_bytes == -436);
    CHECK(figures.heap.growth_since_baseline_bytes == 364);
    CHECK(figures.interval.duration_ns == 2 * second);
    CHECK(figures.interval.allocated_bytes == 564);
    CHECK(figures.interval.allocations == 6);
    CHECK(figures.interval.freed_bytes == 1000);
    CHECK(figures.interval.frees == 10);
    CHECK_FALSE(figures.has_baseline);
    check_laws(figures);
}

TEST_CASE("a baseline makes what is live now known, and leaves growth since the previous report alone", "[heap]") {
    History history = history_since(0);
    const Snapshot first = snapshot_at(second, {site(3, 1, {1000, 10, 0, 0})});
    history.advance(first, {});
    const Snapshot second_one = snapshot_at(2 * second, {site(3, 1, {1600, 16, 0, 0})});
    history.set_baseline(second_one, {});
    const ScopeFigures figures = figures_of(history, snapshot_at(3 * second, {site(3, 1, {1700, 17, 0, 0})}));
    CHECK(site_of(figures, 3).growth_since_baseline_bytes == 100);
    CHECK(site_of(figures, 3).growth_bytes == 700);
    CHECK(figures.heap.growth_since_baseline_bytes == 100);
    CHECK(figures.has_baseline);
}

TEST_CASE("the peak is the highest live of reports and of snapshots that were not reported", "[heap]") {
    History history = history_since(0);
    history.advance(snapshot_at(1, {site(3, 1, {500, 5, 0, 0})}), {});
    history.observe(snapshot_at(2, {site(3, 1, {900, 9, 0, 0})}), {});
    CHECK(figures_of(history, snapshot_at(3, {site(3, 1, {900, 9, 800, 8})})).heap.peak_live_bytes == 900);
    CHECK(figures_of(history, snapshot_at(4, {site(3, 1, {2000, 20, 100, 1})})).heap.peak_live_bytes == 1900);
    history.end_processes(snapshot_at(5, {}), {}, std::vector{pid}, keep);
    history.update(std::vector{identity(pid)});
    Snapshot next = snapshot_at(6, {site(4, 2, {900, 9, 800, 8})});
    next.address_spaces = {space(1, 0, 5), space(2, 6)};
    CHECK(history.figures(next, {}, {}).at(2).heap.peak_live_bytes == 100);
}

TEST_CASE("what exec ended is ended, not live, and its sites stay in the sums", "[heap]") {
    const History history = history_since(0);
    Snapshot snapshot = snapshot_at(10, {site(3, 1, {1000, 10, 300, 3}), site(4, 2, {50, 5, 0, 0})});
    snapshot.address_spaces = {space(1, 1, 5), space(2, 6)};
    snapshot.blocks = {{0x10, 700, 2, 3, 1}};
    const ScopeFigures figures = figures_of(history, snapshot);
    CHECK(figures.heap.ended_bytes == 700);
    CHECK(figures.heap.ended_blocks == 7);
    CHECK(figures.heap.live_bytes == 50);
    CHECK(site_of(figures, 3).live_bytes == 0);
    CHECK_FALSE(site_of(figures, 3).ages);
    check_laws(figures);
}

TEST_CASE("the last report of a process that has exited shows it as it ended", "[heap]") {
    const History history = history_since(0);
    Snapshot snapshot = snapshot_at(10, {site(3, 1, {1000, 10, 300, 3}), site(4, 2, {50, 5, 0, 0})});
    snapshot.address_spaces = {space(2, 6, 9), space(1, 1, 5)};
    FigureOptions options;
    CHECK(figures_of(history, snapshot, options).heap.live_bytes == 0);
    options.exited = {pid};
    const ScopeFigures figures = figures_of(history, snapshot, options);
    CHECK(figures.heap.live_bytes == 50);
    CHECK(figures.heap.ended_bytes == 700);
    check_laws(figures);
}

TEST_CASE("counters read in the middle of a free never go below zero", "[heap]") {
    const History history = history_since(0);
    const ScopeFigures figures = figures_of(history, snapshot_at(10, {site(3, 1, {100, 1, 150, 2})}));
    CHECK(figures.heap.live_bytes == 0);
    CHECK(figures.heap.live_blocks == 0);
    check_laws(figures);
}

TEST_CASE("ages are minimum, lower median and maximum of the blocks seen", "[heap]") {
    const History history = history_since(0);
    Snapshot snapshot = snapshot_at(100, {site(3, 1, {40, 4, 0, 0}), site(4, 1, {8, 1, 0, 0})});
    for (const uint64_t birth_ns : {90, 10, 50, 70})
        snapshot.blocks.push_back({birth_ns, 10, birth_ns, 3, 1});
    FigureOptions options;
    options.keeps_blocks = true;
    const ScopeFigures figures = figures_of(history, snapshot, options);
    const Ages ages = site_of(figures, 3).ages.value();
    CHECK(ages.min_ns == 10);
    CHECK(ages.median_ns == 30);
    CHECK(ages.max_ns == 90);
    REQUIRE(site_of(figures, 3).blocks.size() == 4);
    CHECK(site_of(figures, 3).blocks.front().birth_ns == 10);
    CHECK(site_of(figures, 3).blocks.back().birth_ns == 90);
    CHECK_FALSE(site_of(figures, 4).ages);
}

TEST_CASE("a block born after the snapshot's time is of age zero", "[heap]") {
    const History history = history_since(0);
    Snapshot snapshot = snapshot_at(100, {site(3, 1, {40, 4, 0, 0})});
    snapshot.blocks = {{0x10, 40, 120, 3, 1}};
    CHECK(site_of(figures_of(history, snapshot), 3).ages->max_ns == 0);
}

TEST_CASE("older shows only blocks at least that old and leaves the heap's sums whole", "[heap]") {
    const History history = history_since(0);
    Snapshot snapshot = snapshot_at(100, {site(3, 1, {30, 3, 0, 0}), site(4, 1, {8, 1, 0, 0})});
    snapshot.blocks = {{1, 5, 50, 3, 1}, {2, 10, 60, 3, 1}, {3, 15, 99, 3, 1}, {4, 8, 99, 4, 1}};
    FigureOptions options;
    options.older_ns = 40;
    const ScopeFigures figures = figures_of(history, snapshot, options);
    REQUIRE(figures.sites.size() == 1);
    CHECK(site_of(figures, 3).live_bytes == 15);
    CHECK(site_of(figures, 3).live_blocks == 2);
    CHECK(site_of(figures, 3).ages->min_ns == 40);
    CHECK(site_of(figures, 3).totals.allocations == 3);
    CHECK(figures.heap.live_bytes == 38);
    CHECK(figures.heap.live_blocks == 4);
}

TEST_CASE("mappings come from the ledger and stay out of the heap", "[heap]") {
    const History history = history_since(0);
    MappingLedger ledger;
    mt_mapping_event event{};
    event.header = {MT_EVENT_MAP, 1, 40, 10, 10};
    event.address = 0x10000;
    event.size_bytes = 8192;
    event.site = 9;
    ledger.apply(event, false);
    event.header.type = MT_EVENT_UNMAP;
    event.size_bytes = 4096;
    ledger.apply(event, false);
    event.address = 0x90000;
    ledger.apply(event, false);
    const Snapshot snapshot = snapshot_at(100, {site(3, 1, {30, 3, 0, 0}), site(9, 1, {})});
    const ScopeFigures figures = figures_of(history, snapshot, {}, ledger);
    CHECK(figures.mappings.live_bytes == 4096);
    CHECK(figures.mappings.live_count == 1);
    CHECK(figures.mappings_growth_bytes == 4096);
    CHECK(figures.accuracy.unknown_frees == 1);
    CHECK(site_of(figures, 9).is_mapping);
    CHECK(site_of(figures, 9).live_blocks == 1);
    CHECK(site_of(figures, 9).ages->max_ns == 60);
    CHECK(figures.heap.live_bytes == 30);
    check_laws(figures);

    Snapshot ended = snapshot;
    ended.address_spaces = {space(1, 1, 50), space(2, 51)};
    const ScopeFigures after = figures_of(history, ended, {}, ledger);
    CHECK(after.mappings.live_bytes == 0);
    CHECK(after.mappings.mapped_bytes == after.mappings.unmapped_bytes);
}

TEST_CASE("sites that were never used are no sites, and processes are apart", "[heap]") {
    History history = history_since(0);
    history.update(std::vector{identity(200)});
    Snapshot snapshot = snapshot_at(100, {site(3, 1, {30, 3, 0, 0}), site(4, 1, {}), site(5, 2, {7, 1, 0, 0})});
    snapshot.address_spaces.push_back(space(2, 0));
    snapshot.address_spaces.back().pid = 200;
    const auto figures = history.figures(snapshot, {}, {});
    REQUIRE(figures.size() == 2);
    CHECK(figures.at(1).sites.size() == 1);
    CHECK(figures.at(2).heap.live_bytes == 7);
}

TEST_CASE("a process of which nothing was seen has figures, with the losses", "[heap]") {
    const History history = history_since(0);
    FigureOptions options;
    options.side_band_lost = 3;
    options.is_size_filtered = true;
    Snapshot snapshot = snapshot_at(100, {});
    snapshot.address_spaces.clear();
    const ScopeFigures figures = figures_of(history, snapshot, options);
    CHECK(figures.root == pid);
    CHECK(figures.heap.live_bytes == 0);
    CHECK(figures.interval.duration_ns == 100);
    CHECK(figures.accuracy.events_lost() == 3);
    CHECK(figures.accuracy.is_size_filtered);
    CHECK(figures.processes.size() == 1);
}

TEST_CASE("the laws hold at every report of a random life with execs", "[heap]") {
    std::mt19937 random(7);
    History history = history_since(0);
    Snapshot snapshot = snapshot_at(1, {});
    for (uint32_t tick = 1; tick < 300; ++tick) {
        snapshot.time_ns = tick * second;
        AddressSpace& current = snapshot.address_spaces.back();
        if (random() % 20 == 0) {
            current.ended_ns = snapshot.time_ns;
            const uint32_t next_owner = current.owner + 1;
            snapshot.address_spaces.push_back(space(next_owner, snapshot.time_ns));
        }
        const uint32_t owner = snapshot.address_spaces.back().owner;
        snapshot.sites.push_back(site(tick, owner, {random() % 1000, 1 + random() % 10, 0, 0}));
        for (Site& any : snapshot.sites) {
            if (any.owner != owner) continue;
            any.totals.freed_bytes += any.totals.live_bytes() == 0 ? 0 : random() % any.totals.live_bytes();
            any.totals.frees += any.totals.live_blocks() == 0 ? 0 : random() % any.totals.live_blocks();
        }
        const ScopeFigures figures = figures_of(history, snapshot);
        check_laws(figures);
        REQUIRE(figures.sites.size() == snapshot.sites.size());
        REQUIRE(figures.heap.growth_since_baseline_bytes == static_cast<int64_t>(figures.heap.live_bytes));
        history.advance(snapshot, {});
        REQUIRE(figures_of(history, snapshot).heap.growth_bytes == 0);
    }
}

TEST_CASE("stacks that end early are counted, allocation by allocation", "[heap]") {
    const History history = history_since(0);
    Snapshot snapshot = snapshot_at(second, {site(1, 1, {80, 8, 0, 0}), site(2, 1, {30, 3, 10, 1})});
    CHECK(figures_of(history, snapshot).accuracy.stacks_truncated == 0);
    snapshot.sites[0].flags |= MT_SITE_STACK_NO_CFI;
    snapshot.sites[1].flags |= MT_SITE_STACK_UNREADABLE;
    // These the kernel side has counted.
    snapshot.sites.push_back(site(3, 1, {5, 5, 0, 0}));
    snapshot.sites[2].flags |= MT_SITE_STACK_TRUNCATED;
    CHECK(figures_of(history, snapshot).accuracy.stacks_truncated == 11);
    CHECK(figures_of(history, snapshot).accuracy.is_complete());
}
