#include "reports/leak_report.hpp"

#include "catch.hpp"

using namespace memtrace;

namespace {

class FakeNames : public SiteNames {
  public:
    const std::vector<Frame>& frames(uint32_t site) override {
        asked.push_back(site);
        stack_.assign(1, Frame{});
        stack_[0].function = "function_" + std::to_string(site);
        return stack_;
    }
    std::optional<std::string> site_id(uint32_t site, std::string_view kind, std::string_view function) override {
        if (site == 2) return std::nullopt;
        return std::string(kind) + "/" + std::string(function);
    }
    std::optional<std::string> stack_error(uint32_t site) override {
        return site == 2 ? std::optional<std::string>("stack not recorded") : std::nullopt;
    }

    std::vector<uint32_t> asked;

  private:
    std::vector<Frame> stack_;
};

RowName row_name(uint32_t row) {
    return {"libc", row == 7 ? "mmap" : "malloc"};
}

SiteFigures site(uint32_t index, uint64_t live_bytes, bool is_mapping = false) {
    SiteFigures figures;
    figures.site = index;
    figures.row = is_mapping ? 7 : 1;
    figures.is_mapping = is_mapping;
    figures.totals = {live_bytes + 5, 3, 5, 1};
    figures.live_bytes = live_bytes;
    figures.live_blocks = 2;
    return figures;
}

ScopeFigures process() {
    ScopeFigures figures;
    figures.root = 42;
    figures.processes.emplace_back();
    figures.processes.back().pid = 42;
    figures.sites = {site(1, 10), site(2, 30), site(3, 20), site(4, 5, true)};
    figures.heap.live_bytes = 60;
    figures.has_baseline = true;
    return figures;
}

}  // namespace

TEST_CASE("a leak report names the sites that it shows and no other", "[reports]") {
    FakeNames names;
    LeakReportInput input;
    input.sequence = 5;
    input.is_final = true;
    input.scope_name = "victim";
    input.memory = {4096, std::nullopt, std::nullopt, std::nullopt, std::nullopt};
    LeakReportOptions options;
    options.top = 2;
    const ReportRecord report = build_leak_report(process(), input, options, names, row_name);
    CHECK(names.asked == std::vector<uint32_t>{2, 3, 4});
    CHECK(report.sites_total == 4);
    CHECK(report.heap_sites_total == 3);
    REQUIRE(report.sites.size() == 3);
    CHECK(report.sites[0].function == "malloc");
    CHECK(report.sites[0].live_bytes == 30);
    CHECK(report.sites[0].allocated_bytes == 35);
    CHECK_FALSE(report.sites[0].id);
    CHECK(report.sites[0].stack_error == "stack not recorded");
    CHECK(report.sites[1].id == "heap/malloc");
    CHECK(report.sites[1].frames[0].function == "function_3");
    CHECK(report.sites[2].kind == "mapping");
    CHECK(report.sites[2].id == "mapping/mmap");
    CHECK_FALSE(report.sites[2].blocks);
    CHECK(report.sequence == 5);
    CHECK(report.is_final);
    CHECK(report.has_baseline);
    CHECK(report.scope.by == "process");
    CHECK(report.scope.name == "victim");
    CHECK(report.scope.pid == 42);
    CHECK(report.scope.pids == std::vector<pid_t>{42});
    CHECK(report.memory.rss_bytes == 4096u);
}

TEST_CASE("with the blocks asked for, each site has its own with their ages", "[reports]") {
    FakeNames names;
    ScopeFigures figures = process();
    figures.sites[1].blocks = {{0x100, 8, 40, 2, 1}, {0x200, 16, 990, 2, 1}};
    LeakReportInput input;
    input.snapshot_time_ns = 100;
    LeakReportOptions options;
    options.shows_blocks = true;
    const ReportRecord report = build_leak_report(figures, input, options, names, row_name);
    REQUIRE(report.sites[0].blocks.value().size() == 2);
    CHECK(report.sites[0].blocks->at(0).address == 0x100);
    CHECK(report.sites[0].blocks->at(0).size_bytes == 8);
    CHECK(report.sites[0].blocks->at(0).age_ns == 60);
    CHECK(report.sites[0].blocks->at(1).age_ns == 0);
    CHECK(report.sites[1].blocks.value().empty());
}

TEST_CASE("an allocator is in use when it is called, not when it is mapped", "[reports]") {
    FakeNames names;
    ScopeFigures figures = process();
    figures.sites.push_back(site(5, 100));
    figures.sites.back().row = 9;
    LeakReportInput input;
    input.allocators = {"jemalloc", "libc", "tcmalloc"};
    LeakReportOptions options;
    options.top = 1;
    const auto names_of_rows = [](uint32_t row) -> RowName { return {row == 9 ? "jemalloc" : "libc", "malloc"}; };
    const auto allocators = build_leak_report(figures, input, options, names, names_of_rows).allocators;
    REQUIRE(allocators.size() == 3);
    CHECK(allocators[0].name == "libc");
    CHECK(allocators[0].allocations == 9);
    CHECK(allocators[0].allocated_bytes == 75);
    CHECK(allocators[1].name == "jemalloc");
    CHECK(allocators[1].allocations == 3);
    CHECK(allocators[2].name == "tcmalloc");
    CHECK(allocators[2].allocations == 0);
}

TEST_CASE("a report of several processes names them and those that hold a site", "[reports]") {
    FakeNames names;
    ScopeFigures figures = process();
    figures.kind = ScopeKind::exe;
    figures.root = 0;
    figures.key = "/usr/bin/victim";
    figures.processes[0].number = 7;
    figures.processes.push_back(figures.processes[0]);
    figures.processes[1].number = 8;
    figures.processes[1].pid = 43;
    figures.processes[1].has_ended = true;
    figures.sites[1].holders = {{42, 30, 2}};
    figures.sites[1].holders_total = 1;
    figures.ended_processes.count = 3;
    ProcessDescriptions descriptions;
    descriptions[7].comm = "victim";
    descriptions[7].rss_bytes = 4096;
    LeakReportInput input;
    input.scope_name = figures.key;
    input.processes = &descriptions;
    const ReportRecord report = build_leak_report(figures, input, {}, names, row_name);
    CHECK(report.scope.by == "exe");
    CHECK(report.scope.name == "/usr/bin/victim");
    CHECK_FALSE(report.scope.pid);
    CHECK(report.scope.pids == std::vector<pid_t>{42});
    REQUIRE(report.processes.size() == 2);
    CHECK(report.processes[0].comm == "victim");
    CHECK(report.processes[0].rss_bytes == 4096u);
    CHECK(report.processes[1].figures.pid == 43);
    CHECK(report.ended_processes.count == 3);
    CHECK(report.sites[0].holders.size() == 1);
    CHECK(report.sites[0].holders_total == 1);
}
