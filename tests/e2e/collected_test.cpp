// Garbage-collected heaps: libgc in C programs and in Crystal. What is kept is exact; what a collection has found dead
// is gone at the next report, but for what the collector itself still holds.
#include <filesystem>
#include <fstream>

#include "catch.hpp"
#include "e2e/check_cases.hpp"

using namespace memtrace::e2e;

namespace {

bool is_built(const std::string& program) {
    if (std::filesystem::exists(workload_path(program))) return true;
    WARN("skipped: " << program << " is not built, because a package is missing (libgc-dev, crystal)");
    return false;
}

/// Dead objects that libgc can still hold: a page of each size that is kept ready for the thread, and what old words on
/// the stack happen to point to.
int64_t most_retained(int64_t size_bytes) {
    return 4096 / size_bytes + 4;
}

Json site_of(const Json& report, const std::string& function) {
    for (const Json& site : report.at("sites"))
        if (!site.at("frames").empty() && site.at("frames").at(0).at("function") == function) return site;
    throw std::runtime_error("no call site in " + function);
}

Json type_of(const Json& record, const std::string& name) {
    for (const Json& type : record.at("types"))
        if (type.at("type") == name) return type;
    return {{"live_blocks", 0}, {"allocations", 0}, {"live_bytes", 0}, {"allocated_bytes", 0}};
}

void check_garbage(const std::string& program, const std::string& rung) {
    Workload workload(workload_path(program));
    Memtrace memtrace(on_demand(rung, workload.pid()));
    memtrace.wait_attached();
    memtrace.report();
    workload.go();
    const Json report = memtrace.report();
    INFO(report.at("accuracy").dump());
    CHECK(report.at("accuracy").at("complete") == true);
    CHECK(sites_called(report, "keeps").live_blocks == 1000);
    CHECK(sites_called(report, "keeps").allocations == 1000);
    CHECK(sites_called(report, "makes_garbage").allocations == 20000);
    CHECK(sites_called(report, "makes_garbage").live_blocks <= most_retained(112));
    CHECK(site_of(report, "keeps").at("kind") == "gc");
    CHECK(site_of(report, "keeps").at("allocator") == "boehm");
    workload.go();
    const Json truth = workload.go();
    const Json last = memtrace.report();
    CHECK(sites_called(last, "keeps").live_blocks == 1000);
    CHECK(sites_called(last, "makes_finalized").allocations == 200);
    CHECK(sites_called(last, "makes_finalized").live_blocks <= most_retained(208));
    // A finalizer that a static libgc calls is in one file with it, and taken for its own.
    if (program == "gc_garbage") {
        CHECK(sites_called(last, "finalizes").allocations == truth.at("finalized"));
        CHECK(sites_called(last, "finalizes").live_blocks == truth.at("finalized"));
    }
    const MemtraceEnd end = memtrace.stop();
    CHECK(end.status == 0);
    CHECK_THAT(end.errors, ContainsSubstring("allocates from its collector without calls"));
    CHECK(workload.quit(3) == 3);
}

Json census_of(pid_t pid, std::vector<std::string> options = {}) {
    std::vector<std::string> command = {memtrace_path(), "census", std::to_string(pid), "--format", "json"};
    command.insert(command.end(), options.begin(), options.end());
    const Finished end = run_to_end(command);
    INFO(end.errors);
    REQUIRE(end.status == 0);
    // What malloc has comes behind.
    return Json::parse(end.output.substr(0, end.output.find('\n')));
}

/// Old words on a stack that look like addresses hold a few objects more than the program does.
bool holds(const Json& entry, int64_t objects) {
    const auto live = entry.at("live_blocks").get<int64_t>();
    return live >= objects && live <= objects + 3;
}

void check_animals(const Json& report, int64_t dogs, int64_t nodes) {
    CHECK(report.at("accuracy").at("complete") == true);
    CHECK(type_of(report, "Dog").at("allocations") == 1500);
    CHECK(type_of(report, "Dog").at("allocated_bytes") == 1500 * 24);
    CHECK(holds(type_of(report, "Dog"), dogs));
    CHECK(type_of(report, "Cat").at("allocations") == 5000);
    CHECK(type_of(report, "Node(Int32)").at("allocations") == nodes);
    CHECK(type_of(report, "Node(Int32)").at("live_blocks") == nodes);
    CHECK(type_of(report, "Big").at("allocations") == 20);
    CHECK(type_of(report, "Big").at("allocated_bytes") == 20 * 4100);
    CHECK(type_of(report, "String").at("live_blocks").get<int64_t>() >= dogs);
}

std::vector<std::string> with(std::vector<std::string> options, const std::vector<std::string>& more) {
    options.insert(options.begin(), more.begin(), more.end());
    return options;
}

}  // namespace

TEST_CASE("every function of libgc is counted once, and what is kept stays", "[e2e][collected]") {
    for (const std::string program : {"gc_cases", "gc_cases_static"}) {
        if (!is_built(program)) continue;
        on_every_rung([&](const std::string& rung) { check_cases({workload_path(program)}, rung); });
    }
}

TEST_CASE("what libgc collects is freed at the next report", "[e2e][collected]") {
    for (const std::string program : {"gc_garbage", "gc_garbage_static"})
        if (is_built(program)) check_garbage(program, "session");
}

TEST_CASE("a census counts what is reachable without a probe", "[e2e][collected]") {
    if (!is_built("gc_garbage")) return;
    Workload workload(workload_path("gc_garbage"));
    const Json before = census_of(workload.pid());
    workload.go();
    const Json after = census_of(workload.pid());
    const int64_t kept = after.at("live_blocks").get<int64_t>() - before.at("live_blocks").get<int64_t>();
    CHECK(kept >= 1000);
    CHECK(kept <= 1000 + 2 * most_retained(112));
    CHECK(after.at("blocks_not_read") == 0);
    CHECK(workload.quit(0) == 0);
}

TEST_CASE("Crystal objects are counted by type, live as of the last collection", "[e2e][collected]") {
    if (!is_built("crystal_animals")) return;
    Workload workload(workload_path("crystal_animals"));
    Memtrace memtrace(with(on_demand("session", workload.pid()), {"--types"}));
    memtrace.wait_attached();
    workload.go();
    check_animals(memtrace.report(), 1500, 200);
    workload.go();
    const Json report = memtrace.report();
    check_animals(report, 1000, 300);
    CHECK(type_of(report, "Cat").at("live_blocks") <= 3);
    CHECK(type_of(report, "Big").at("live_blocks") <= 1);
    const Json census = census_of(workload.pid(), {"--type-names", workload_path("crystal_animals.types")});
    CHECK(holds(type_of(census, "Dog"), 1000));
    CHECK(type_of(census, "Node(Int32)").at("live_blocks") == 300);
    CHECK(holds(type_of(census_of(workload.pid()), "Dog"), 1000));
    CHECK(memtrace.stop().status == 0);
    CHECK(workload.quit(5) == 5);
}

TEST_CASE("types do not depend on how Crystal was told to compile", "[e2e][collected]") {
    for (const std::string build : {"_no_debug", "_release", "_release_no_debug"}) {
        if (!is_built("crystal_animals" + build)) continue;
        INFO(build);
        const std::vector<std::string> names = {"--type-names", workload_path("crystal_animals.types")};
        Workload workload(workload_path("crystal_animals" + build));
        Memtrace memtrace(with(with(on_demand("session", workload.pid()), {"--types"}), names));
        memtrace.wait_attached();
        workload.go();
        workload.go();
        check_animals(memtrace.report(), 1000, 300);
        CHECK(holds(type_of(census_of(workload.pid(), names), "Dog"), 1000));
        CHECK(memtrace.stop().status == 0);
        CHECK(workload.quit(5) == 5);
    }
}

TEST_CASE("a child keeps what its parent's collector gives back", "[e2e][collected]") {
    if (!is_built("gc_fork")) return;
    Workload workload(workload_path("gc_fork"));
    Memtrace memtrace(with(on_demand("session", workload.pid()), {"--follow", "--by", "process"}));
    memtrace.wait_attached();
    const auto child = workload.go().at("child").get<pid_t>();
    const auto blocks_of_child = [&] {
        for (const Json& report : memtrace.reports(2))
            if (report.at("scope").at("pid") == child) return report.at("heap").at("inherited_blocks").get<int64_t>();
        return int64_t{-1};
    };
    CHECK(blocks_of_child() == 1000);
    workload.go();
    CHECK(blocks_of_child() == 1000);
    CHECK(memtrace.stop().status == 0);
    CHECK(workload.quit(0) == 0);
}

TEST_CASE("--type shows one type's call stacks, --depth folds them", "[e2e][collected]") {
    if (!is_built("crystal_animals")) return;
    Workload workload(workload_path("crystal_animals"));
    Memtrace memtrace(
        with(on_demand("session", workload.pid()), {"--type", "Node(Int32)", "--depth", "4", "--min-count", "50"}));
    memtrace.wait_attached();
    workload.go();
    workload.go();
    const Json report = memtrace.report();
    int64_t nodes = 0;
    for (const Json& site : report.at("sites")) {
        CHECK(site.at("type") == "Node(Int32)");
        CHECK(site.at("frames").size() <= 4);
        CHECK(site.at("stack_error").is_null());
        nodes += site.at("allocations").get<int64_t>();
    }
    // make_nodes is the fourth frame: below it the main program and the fiber differ.
    CHECK(report.at("sites").size() == 1);
    CHECK(nodes == 300);
    CHECK(report.at("accuracy").at("stacks_truncated") == 0);
    CHECK(memtrace.stop().status == 0);
    CHECK(workload.quit(0) == 0);
}

TEST_CASE("objects whose type finds no room are counted", "[e2e][collected][losses]") {
    if (!is_built("crystal_animals")) return;
    Workload workload(workload_path("crystal_animals"));
    Memtrace memtrace(with(on_demand("session", workload.pid()), {"--types", "--max-sites", "2"}));
    memtrace.wait_attached();
    workload.go();
    const Json report = memtrace.report();
    CHECK(report.at("accuracy").at("types_not_recorded").get<int64_t>() > 0);
    CHECK(report.at("accuracy").at("stacks_not_recorded").get<int64_t>() > 0);
    CHECK(memtrace.stop().status == 0);
    CHECK(workload.quit(0) == 0);
}

TEST_CASE("a Crystal program that memtrace starts is traced by type", "[e2e][collected]") {
    if (!is_built("crystal_animals")) return;
    Child memtrace(
        {memtrace_path(), "--format", "json", "--types", "-T", "0", "3600", "--", workload_path("crystal_animals")});
    memtrace.write_line("go");
    memtrace.write_line("quit 6");
    Json last;
    while (const auto line = memtrace.read_line_or_end())
        if (line->starts_with('{') && line->find("\"type\":\"report\"") != std::string::npos) last = Json::parse(*line);
    CHECK(memtrace.wait() == 6);
    CHECK(type_of(last, "Dog").at("allocations") == 1500);
    CHECK(type_of(last, "Cat").at("allocations") == 5000);
}

TEST_CASE("a census of a Go program is its runtime's own heap profile", "[e2e][collected]") {
    for (const std::string program : {"go_heap", "go_heap_stripped"}) {
        if (!is_built(program)) continue;
        INFO(program);
        Workload workload(workload_path(program));
        const Json truth = workload.go();
        REQUIRE(truth.at("is_whole") == true);
        const Json census = census_of(workload.pid());
        int64_t live_samples = 0;
        int64_t dogs = 0;
        for (const Json& site : census.at("sites")) {
            live_samples += site.at("live_samples").get<int64_t>();
            if (site.at("functions").at(0) == "main.makeDogs") dogs += site.at("live_bytes").get<int64_t>();
        }
        // The same samples; estimated from them is the heap, within four standard errors.
        CHECK(live_samples == truth.at("live_samples"));
        CHECK(census.at("live_samples") == truth.at("live_samples"));
        const auto heap_bytes = truth.at("heap_bytes").get<int64_t>();
        const auto error_bytes = census.at("error_bytes").get<int64_t>();
        INFO(census.at("live_bytes") << " of " << heap_bytes << " with an error of " << error_bytes);
        CHECK(std::abs(census.at("live_bytes").get<int64_t>() - heap_bytes) < 4 * error_bytes + (1 << 20));
        CHECK(dogs > 200000 * 128 - 4 * error_bytes);
        CHECK(workload.quit(0) == 0);
    }
}

TEST_CASE("a Go program without a heap profile is told how to get one", "[e2e][collected]") {
    if (!is_built("stacks/stacks_chain_go")) return;
    Child program({workload_path("stacks/stacks_chain_go")});
    program.read_line();
    const Finished end = run_to_end({memtrace_path(), "census", std::to_string(program.pid())});
    CHECK(end.status == 1);
    CHECK_THAT(end.errors, ContainsSubstring("MemProfileRate = 0"));
    CHECK_THAT(end.errors, ContainsSubstring("net/http/pprof"));
    program.send_signal(9);
    program.wait();
}
