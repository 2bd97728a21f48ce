// Who is traced, as processes come and go: descendants, programs that start later, and many targets at once. What the
// programs did is known exactly; with --from-birth nothing of it may be missing.
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "e2e/memtrace.hpp"
#include "e2e/records.hpp"
#include "e2e/temporary_directory.hpp"

using namespace memtrace::e2e;

namespace {

// What one child, or one image of an exec chain, does.
constexpr int64_t allocations_each = 10;
constexpr int64_t frees_each = 3;

std::vector<std::string> following(pid_t pid, const std::string& by, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"-f", "-p", std::to_string(pid), "--by", by, "-T", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.push_back("3600");
    return arguments;
}

void check_from_birth(const std::string& what, int count, int processes) {
    Workload workload(workload_path("children"), {std::to_string(count)});
    Memtrace memtrace(following(workload.pid(), "tree", {"--from-birth"}));
    memtrace.wait_attached();
    tell(workload, what);
    const MemtraceEnd end = memtrace.stop();
    CHECK(end.status == 0);
    check_complete(end);
    // The program that makes them allocates nothing. Call sites of what has ended are not shown, but in the totals.
    const Json& heap = end.final_report().at("heap");
    CHECK(heap.at("allocations") == processes * allocations_each);
    CHECK(heap.at("allocated_bytes") == processes * allocations_each * 100);
    CHECK(heap.at("frees") == processes * frees_each);
    CHECK(workload.quit(0) == 0);
}

/// Each worker's counts in the report of its process.
void check_workers(const Json& truth, const std::vector<Json>& reports) {
    std::map<std::string, Json> by_pid;
    for (const Json& report : reports)
        by_pid[std::to_string(report.at("scope").at("pid").get<pid_t>())] = report;
    for (const auto& [pid, worker] : truth.at("workers").items()) {
        if (worker.at("has_window") == true) continue;
        INFO("worker " << pid);
        REQUIRE(by_pid.contains(pid));
        const Json& report = by_pid.at(pid);
        CHECK(report.at("heap").at("allocations") == worker.at("allocations"));
        CHECK(report.at("heap").at("frees") == worker.at("frees"));
        CHECK(report.at("accuracy").at("complete") == true);
        CHECK(report.at("accuracy").at("unknown_frees") == 0);
        CHECK(report.at("accuracy").at("calls_abandoned") == 0);
    }
}

}  // namespace

TEST_CASE("from birth, nothing of 1,000 short-lived children is missed", "[e2e][follow]") {
    check_from_birth("fork", 1000, 1000);
}

TEST_CASE("from birth, nothing of an exec chain, of vfork and exec, and of a daemon is missed", "[e2e][follow]") {
    SECTION("an exec chain of ten") {
        check_from_birth("chain", 10, 10);
    }
    SECTION("vfork and exec, twenty times") {
        check_from_birth("vfork", 20, 20);
    }
    SECTION("a daemon that forks twice") {
        check_from_birth("daemon", 1, 1);
    }
}

TEST_CASE("from birth, 20 processes in a row with one process id are 20 processes", "[e2e][follow]") {
    check_from_birth("reuse", 20, 20);
}

TEST_CASE("processes in a row with one process id are told apart while each has links of its own", "[e2e][follow]") {
    Workload workload(workload_path("children"), {"20"});
    Memtrace memtrace(following(workload.pid(), "process"));
    memtrace.wait_attached();
    tell(workload, "reuse");
    const MemtraceEnd end = memtrace.stop();
    check_complete(end);
    CHECK(process_records(end, "fork").size() == 20);
    CHECK(process_records(end, "exit").size() == 20);
    int reports = 0;
    for (const Json& record : end.records) {
        if (record.at("type") != "report" || record.at("scope").at("pid") == workload.pid()) continue;
        ++reports;
        CHECK(sites_called(record, "children_malloc").allocations <= allocations_each);
        CHECK(record.at("heap").at("allocations") <= allocations_each);
    }
    CHECK(reports == 20);
    CHECK(workload.quit(0) == 0);
}

TEST_CASE("a storm of 1,000 forks by default: each child is told of, and nothing that is counted is wrong",
          "[e2e][follow]") {
    Workload workload(workload_path("children"), {"1000"});
    Memtrace memtrace(following(workload.pid(), "tree"));
    memtrace.wait_attached();
    tell(workload, "fork");
    const MemtraceEnd end = memtrace.stop();
    CHECK(end.status == 0);
    check_complete(end);
    CHECK(process_records(end, "fork").size() == 1000);
    CHECK(process_records(end, "exit").size() == 1000);
    const Json& heap = end.final_report().at("heap");
    CHECK(heap.at("allocations") <= 1000 * allocations_each);
    CHECK(heap.at("frees") <= 1000 * frees_each);
    CHECK(heap.at("live_blocks") == 0);
    CHECK(workload.quit(0) == 0);
}

TEST_CASE("each child has its window, and nothing that is counted is wrong", "[e2e][follow]") {
    Workload workload(workload_path("children"), {"20"});
    Memtrace memtrace(following(workload.pid(), "process"));
    memtrace.wait_attached();
    tell(workload, "fork");
    const MemtraceEnd end = memtrace.stop();
    CHECK(end.status == 0);
    check_complete(end);
    CHECK(process_records(end, "fork").size() == 20);
    CHECK(process_records(end, "exit").size() == 20);
    for (const Json& record : end.records)
        if (record.at("type") == "process" && record.at("event") == "fork")
            CHECK(record.at("since_birth") == (record.at("window_ns") == 0));
    CHECK(calls_in_final_reports(end, "children_malloc").allocations <= 20 * allocations_each);
    CHECK(workload.quit(0) == 0);
}

TEST_CASE("more than 16 targets change to one link while they allocate, and each call counts once", "[e2e][follow]") {
    for (const char* rung : {"session", "multi"}) {
        DYNAMIC_SECTION("rung " << rung) {
            Workload workload(workload_path("children"), {"15", "workers"});
            Memtrace memtrace(following(workload.pid(), "process", {"--attach", rung}));
            memtrace.wait_attached();
            tell(workload, "run");
            tell(workload, "another");  // the 17th
            REQUIRE(memtrace.child().wait_for_error_text("more than 16 targets"));
            // The old links go a second later; the workers go on meanwhile.
            std::this_thread::sleep_for(std::chrono::seconds(3));
            const Json truth = tell(workload, "pause");
            check_workers(truth, memtrace.reports(17));
            CHECK(memtrace.stop().status == 0);
            CHECK(workload.quit(0) == 0);
        }
    }
}

TEST_CASE("a program that starts later is found by its name, its path, its script's name", "[e2e][follow]") {
    const std::string program = workload_path("children");
    const auto check = [&](const std::string& wanted, const std::vector<std::string>& command) {
        Memtrace memtrace({"-x", wanted, "--from-birth", "--by", "process", "-T", "0", "3600"});
        REQUIRE(memtrace.child().wait_for_error_text("waiting"));
        run_to_end(command);
        const MemtraceEnd end = memtrace.stop();
        CHECK(end.status == 0);
        CHECK(calls_in_final_reports(end, "children_malloc").allocations == allocations_each);
    };
    SECTION("name") {
        check("children", {program, "1", "leaf"});
    }
    SECTION("path") {
        check(program, {program, "1", "leaf"});
    }
}

TEST_CASE("nothing to trace yet: it waits, or ends with 3", "[e2e][follow]") {
    const Finished finished = run_to_end({memtrace_path(), "-x", "no_such_program_anywhere", "--no-wait"});
    CHECK(finished.status == 3);
    CHECK_THAT(finished.errors, ContainsSubstring("hint: "));
}
