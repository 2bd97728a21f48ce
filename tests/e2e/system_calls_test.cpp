// Memory that is mapped by system calls of the program's own: which call site has it, each byte once; and whose it is
// in programs that map by nothing else.
#include <csignal>
#include <filesystem>

#include "catch.hpp"
#include "e2e/check_cases.hpp"

using namespace memtrace::e2e;

namespace {

constexpr int64_t page = 4096;

int64_t growth_part(const Json& report, const char* name) {
    return report.at("memory").at("growth").at(name);
}

/// The only call site of mappings whose first function of the program is `function`.
const Json* mapping_site(const Json& report, const std::string& function) {
    for (const Json& site : report.at("sites"))
        for (const Json& frame : site.at("frames"))
            if (site.at("kind") == "mapping" && frame.at("function") == function) return &site;
    return nullptr;
}

}  // namespace

TEST_CASE("what a program maps by its own system calls is counted as by libc's functions", "[e2e][system-calls]") {
    const std::string program = GENERATE("system_call_cases", "system_call_cases_static");
    check_cases({.program = workload_path(program), .options = {"--system-calls"}}, "session");
}

TEST_CASE("what libc's functions map is not counted again as a system call", "[e2e][system-calls]") {
    for (const std::string rung : {"session", "perf"})
        check_cases({.program = workload_path("mapping_cases"), .options = {"--system-calls"}, .has_one_report = true},
                    rung);
    check_cases({.program = workload_path("libc_cases"), .options = {"--system-calls"}, .has_one_report = true},
                "session");
}

TEST_CASE("memory behind the probes is explained by its call site, if it is asked for", "[e2e][system-calls]") {
    Workload workload(workload_path("memory_cases"), {"every_kind_is_touched"});
    Memtrace memtrace({"--system-calls", "-T", "0", "-p", std::to_string(workload.pid()), "3600"});
    memtrace.wait_attached();
    const Json truth = workload.go().at("figures");
    const Json report = memtrace.report();
    INFO(report.at("memory").dump());
    const int64_t behind_bytes = truth.at("unexplained_bytes");
    CHECK(std::abs(growth_part(report, "mappings_bytes") - truth.at("mappings_bytes").get<int64_t>() - behind_bytes) <=
          page);
    CHECK(std::abs(growth_part(report, "unexplained_bytes")) <= 4 * page);
    const Json* site = mapping_site(report, "touches_memory_behind_the_back");
    REQUIRE(site);
    CHECK(site->at("allocator") == "kernel");
    CHECK(site->at("function") == "mmap");
    CHECK(site->at("live_bytes") == behind_bytes);
    CHECK(site->at("stack_error") == nullptr);
    const MemtraceEnd end = memtrace.stop();
    CHECK(end.status == 0);
    CHECK_THAT(end.errors, ContainsSubstring("each system call of any process takes"));
}

TEST_CASE("what is mapped is read again after events of system calls were lost", "[e2e][system-calls][losses]") {
    Workload workload(workload_path("memory_cases"),
                      {"an_unmapping_after_many_behind_the_back", "one_more_is_mapped_behind_the_back"});
    Memtrace memtrace(
        {"--system-calls", "--ring-size", "4096", "-T", "0", "-p", std::to_string(workload.pid()), "3600"});
    memtrace.wait_attached();
    memtrace.child().send_signal(SIGSTOP);  // so that nobody empties the ring
    workload.go();
    memtrace.child().send_signal(SIGCONT);
    const Json report = memtrace.report();
    INFO(report.at("accuracy").dump());
    CHECK(report.at("accuracy").at("complete") == false);
    CHECK(report.at("accuracy").at("events_lost").get<int>() > 0);
    CHECK(report.at("mappings").at("mapped_bytes").get<int64_t>() >= 64 * page);
    CHECK(report.at("mappings").at("live_bytes") == 0);
    // From then on nothing is missing again.
    const int64_t mapped_bytes = workload.go().at("figures").at("mappings_bytes");
    const Json later = memtrace.report();
    CHECK(later.at("mappings").at("live_bytes") == mapped_bytes);
    CHECK(growth_part(later, "mappings_bytes") == mapped_bytes);
    CHECK(later.at("accuracy").at("events_lost") == report.at("accuracy").at("events_lost"));
    const Json* site = mapping_site(later, "one_more_is_mapped_behind_the_back");
    REQUIRE(site);
    CHECK(site->at("live_bytes") == mapped_bytes);
    const MemtraceEnd end = memtrace.stop();
    CHECK(end.status == 0);
    CHECK_THAT(end.errors, ContainsSubstring("were lost: its mappings were read again"));
}

TEST_CASE("a program without any name of a function is traced by its system calls", "[e2e][system-calls]") {
    const std::string program = workload_path("system_call_cases_static_stripped");
    Workload workload(program, {"mapping_lives"});
    const std::string pid = std::to_string(workload.pid());
    Memtrace without({"-p", pid, "3600"});
    CHECK(without.wait().status == 4);
    Memtrace memtrace({"--system-calls", "-p", pid, "3600"});
    memtrace.wait_attached();
    workload.go();
    const Json report = memtrace.report();
    CHECK(report.at("mappings").at("live_bytes") == 16 * page);
    CHECK(report.at("accuracy").at("complete") == true);
    CHECK(memtrace.stop().status == 0);
}

TEST_CASE("the growth of a Go program is its heap, by its runtime's system calls", "[e2e][system-calls][go]") {
    if (!std::filesystem::exists(workload_path("go_heap"))) {
        WARN("skipped: go_heap is not built, because a package is missing (golang-go)");
        return;
    }
    Workload workload(workload_path("go_heap"));
    Memtrace memtrace({"-T", "0", "-p", std::to_string(workload.pid()), "3600"});
    memtrace.wait_attached();
    workload.go();
    const Json report = memtrace.report();
    INFO(report.at("memory").dump());
    const int64_t total_bytes = growth_part(report, "total_bytes");
    CHECK(total_bytes > 20'000'000);
    CHECK(std::abs(growth_part(report, "unexplained_bytes")) * 50 <= total_bytes);
    // An arena is no call site's leak.
    CHECK(report.at("mappings").at("live_bytes") == 0);
    const MemtraceEnd end = memtrace.stop();
    CHECK(end.status == 0);
    CHECK_THAT(end.errors, ContainsSubstring("each system call of any process takes"));
    CHECK(workload.quit(0) == 0);
}
