// Processes rolled up to scopes: the cases that a random life does not name, and how long many processes take.
#include <chrono>
#include <map>

#include "catch.hpp"
#include "scope_snapshots.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

const ScopeFigures& one_of(const std::map<uint32_t, ScopeFigures>& figures) {
    REQUIRE(figures.size() == 1);
    return figures.begin()->second;
}

std::vector<pid_t> pids_of(const ScopeFigures& figures) {
    std::vector<pid_t> pids;
    for (const ProcessFigures& process : figures.processes)
        pids.push_back(process.pid);
    return pids;
}

}  // namespace

TEST_CASE("an ended process is in the table of one report, then a number, and its sums stay", "[heap]") {
    History history(0, ScopeKind::tree);
    history.update(std::vector{identity(1), identity(2, 1)});
    Snapshot snapshot;
    snapshot.address_spaces = {space(1, 1, 1), space(2, 2, 2)};
    snapshot.sites = {site(1, 1, 7, {100, 1, 0, 0}), site(2, 2, 7, {50, 5, 10, 1})};
    snapshot.time_ns = 10;
    CHECK(one_of(history.figures(snapshot, {}, {})).heap.live_bytes == 140);
    history.advance(snapshot, {});

    KeptStacks kept;
    history.end_processes(snapshot, {}, std::vector<pid_t>{2}, kept.function(snapshot));
    ScopeFigures figures = one_of(history.figures(snapshot, {}, {}));
    CHECK(figures.heap.live_bytes == 100);
    CHECK(figures.heap.ended_bytes == 40);
    CHECK(figures.heap.totals.allocated_bytes == 150);
    CHECK(figures.heap.growth_bytes == -40);
    REQUIRE(figures.sites.size() == 1);
    CHECK(figures.sites[0].growth_bytes == -40);
    CHECK(figures.sites[0].totals.allocations == 6);
    CHECK(pids_of(figures) == std::vector<pid_t>{1, 2});
    CHECK(figures.processes[1].has_ended);
    CHECK(figures.processes[1].ended_bytes == 40);
    CHECK(figures.processes[1].live_bytes == 0);
    CHECK(figures.processes[1].ancestor == 1);
    CHECK(figures.ended_processes.count == 0);
    history.advance(snapshot, {});

    figures = one_of(history.figures(snapshot, {}, {}));
    CHECK(pids_of(figures) == std::vector<pid_t>{1});
    CHECK(figures.ended_processes.count == 1);
    CHECK(figures.ended_processes.ended_bytes == 40);
    CHECK(figures.heap.totals.allocated_bytes == 150);
    CHECK(figures.heap.growth_bytes == 0);
}

TEST_CASE("the last process of a tree is shown as it ended, and then its tree is forgotten", "[heap]") {
    History history(0, ScopeKind::tree);
    history.update(std::vector{identity(1), identity(2, 1)});
    Snapshot snapshot;
    snapshot.address_spaces = {space(1, 1, 1, 20), space(2, 2, 2, 21)};
    snapshot.sites = {site(1, 1, 7, {100, 1, 0, 0}), site(2, 2, 7, {50, 5, 10, 1})};
    KeptStacks kept;
    history.end_processes(snapshot, {}, std::vector<pid_t>{1}, kept.function(snapshot));
    FigureOptions options;
    options.exited = {2};
    options.scopes = std::vector{history.scopes().scope_of(2)->number};
    const ScopeFigures figures = one_of(history.figures(snapshot, {}, options));
    CHECK(figures.heap.live_bytes == 40);
    CHECK(figures.heap.ended_bytes == 100);
    CHECK_FALSE(figures.processes.back().has_ended);
    history.end_processes(snapshot, {}, std::vector<pid_t>{2}, kept.function(snapshot));
    CHECK(history.scopes().scopes().empty());
    CHECK(history.figures(snapshot, {}, {}).empty());
}

TEST_CASE("a tree keeps a child whose parent ended before it was seen, and draws it below the grandparent", "[heap]") {
    History history(0, ScopeKind::tree);
    Snapshot snapshot;
    KeptStacks kept;
    history.update(std::vector{identity(1), identity(2, 1)});
    history.end_processes(snapshot, {}, std::vector<pid_t>{2}, kept.function(snapshot));
    history.advance(snapshot, {});
    history.update(std::vector{identity(1), identity(3, 2)});
    const ScopeFigures figures = one_of(history.figures(snapshot, {}, {}));
    CHECK(pids_of(figures) == std::vector<pid_t>{1, 3});
    CHECK(figures.processes[1].ancestor == 1);
}

TEST_CASE("a parent joins before its child, whatever their numbers", "[heap]") {
    History history(0, ScopeKind::tree);
    history.update(std::vector{identity(5, 6), identity(6, 7), identity(7)});
    const ScopeFigures figures = one_of(history.figures({}, {}, {}));
    CHECK(figures.root == 7);
    CHECK(pids_of(figures) == std::vector<pid_t>{5, 6, 7});
}

TEST_CASE("100,000 ended children leave no more behind than one", "[heap]") {
    History history(0, ScopeKind::tree);
    KeptStacks kept;
    Snapshot snapshot;
    snapshot.address_spaces = {space(1, 1, 1), space(2, 2, 2)};
    snapshot.sites = {site(1, 1, 7, {100, 1, 0, 0}), site(2, 2, 8, {50, 5, 10, 1})};
    for (uint64_t child = 0; child < 100'000; ++child) {
        snapshot.address_spaces[1].first_seen_ns = child + 2;
        history.update(std::vector{identity(1), identity(2, 1)});
        history.end_processes(snapshot, {}, std::vector<pid_t>{2}, kept.function(snapshot));
    }
    const ScopeFigures figures = one_of(history.figures(snapshot, {}, {}));
    CHECK(figures.processes.size() <= 2001);
    CHECK(figures.processes.size() - 1 + figures.ended_processes.count == 100'000);
    CHECK(figures.heap.totals.allocated_bytes == 100 + 50 * 100'000);
    CHECK(figures.heap.ended_bytes == 40 * 100'000);
    CHECK(figures.sites.size() == 2);
    CHECK(history.scopes().parents().size() <= 2049);
}

TEST_CASE("sites without a known stack are apart while their processes live and one of a function afterwards",
          "[heap]") {
    History history(0, ScopeKind::all);
    history.update(std::vector{identity(1), identity(2), identity(3)});
    Snapshot snapshot;
    snapshot.address_spaces = {space(1, 1, 1), space(2, 2, 2), space(3, 3, 3)};
    snapshot.sites = {site(1, 1, 0, {100, 1, 0, 0}), site(2, 2, 0, {50, 5, 0, 0}), site(3, 3, 0, {1, 1, 0, 0})};
    CHECK(one_of(history.figures(snapshot, {}, {})).sites.size() == 3);
    const auto keep_none = [](uint32_t) { return KeptSite{}; };
    history.end_processes(snapshot, {}, std::vector<pid_t>{1, 2}, keep_none);
    const ScopeFigures figures = one_of(history.figures(snapshot, {}, {}));
    CHECK(figures.sites.size() == 2);
    CHECK(figures.heap.ended_bytes == 150);
}

TEST_CASE("1,000 processes of 100 sites each are rolled up in a moment", "[.performance]") {
    History history(0, ScopeKind::all);
    std::vector<ProcessIdentity> identities;
    Snapshot snapshot;
    for (pid_t pid = 1; pid <= 1000; ++pid) {
        identities.push_back(identity(pid));
        const auto owner = static_cast<uint32_t>(pid);
        snapshot.address_spaces.push_back(space(owner, pid, owner));
        for (uint32_t index = 0; index < 100; ++index) {
            snapshot.sites.push_back(site(owner * 100 + index, owner, index + 1, {1000, 10, 0, 0}));
            for (uint64_t block = 0; block < 10; ++block)
                snapshot.blocks.push_back({block, 100, block, owner * 100 + index, owner});
        }
    }
    history.update(identities);
    const auto start = std::chrono::steady_clock::now();
    const ScopeFigures figures = one_of(history.figures(snapshot, {}, {}));
    const auto figured = std::chrono::steady_clock::now();
    history.advance(snapshot, {});
    const auto advanced = std::chrono::steady_clock::now();
    CHECK(figures.sites.size() == 100);
    CHECK(figures.sites[0].holders_total == 1000);
    using Milliseconds = std::chrono::duration<double, std::milli>;
    WARN("figures " << Milliseconds(figured - start).count() << " ms, advance "
                    << Milliseconds(advanced - figured).count() << " ms");
}

TEST_CASE("a mapping that fork copied, or that several processes share, counts once in their tree", "[heap]") {
    const auto map = [](uint32_t owner, uint32_t site, uint64_t address, uint32_t type = MT_EVENT_MAP) {
        mt_mapping_event event{};
        event.header = {type, owner, 5, owner, owner};
        event.address = address;
        event.size_bytes = 8192;
        event.site = site;
        return event;
    };
    History history(0, ScopeKind::tree);
    history.update(std::vector{identity(1), identity(2, 1)});
    MappingLedger ledger;
    ledger.apply(map(1, 1, 0x10000), false);
    ledger.fork(1, 2);
    ledger.apply(map(1, 1, 0x20000), false, {1, 77, 0});
    ledger.apply(map(2, 2, 0x20000), false, {1, 77, 4096});
    Snapshot snapshot;
    snapshot.address_spaces = {space(1, 1, 1), space(2, 2, 2)};
    snapshot.sites = {site(1, 1, 7, {}), site(2, 2, 8, {})};
    ScopeFigures figures = one_of(history.figures(snapshot, ledger, {}));
    CHECK(figures.mappings.live_bytes == 8192 + 12288);
    CHECK(figures.mappings.mapped_bytes - figures.mappings.unmapped_bytes == figures.mappings.live_bytes);
    REQUIRE(figures.sites.size() == 2);
    CHECK(figures.sites[0].live_bytes + figures.sites[1].live_bytes == figures.mappings.live_bytes);

    ledger.apply(map(1, 0, 0x10000, MT_EVENT_UNMAP), false);
    figures = one_of(history.figures(snapshot, ledger, {}));
    CHECK(figures.mappings.live_bytes == 8192 + 12288);
    ledger.apply(map(2, 0, 0x10000, MT_EVENT_UNMAP), false);
    figures = one_of(history.figures(snapshot, ledger, {}));
    CHECK(figures.mappings.live_bytes == 12288);
    CHECK(figures.mappings.mapped_bytes - figures.mappings.unmapped_bytes == 12288);
}
