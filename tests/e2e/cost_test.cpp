// What tracing costs: said before, measured, kept below a budget; where the probes go and how large the tables are.
#include <signal.h>

#include <sstream>

#include "catch.hpp"
#include "e2e/memtrace.hpp"

using namespace memtrace::e2e;

namespace {

std::string line_with(const std::string& text, const std::string& part) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        if (line.find(part) != std::string::npos) return line;
    return "";
}

std::vector<std::string> command_for(pid_t pid, const std::vector<std::string>& options) {
    std::vector<std::string> command = {memtrace_path(), "--format", "json", "-p", std::to_string(pid)};
    command.insert(command.end(), options.begin(), options.end());
    return command;
}

}  // namespace

TEST_CASE("the cost is said before, and measured while tracing", "[e2e][cost]") {
    require_root();
    Workload churner(workload_path("churner"), {"1"});
    Child memtrace(command_for(churner.pid(), {"3600"}));
    REQUIRE(memtrace.wait_for_error_text("attached to"));
    CHECK_THAT(memtrace.errors(), ContainsSubstring(" calls/s: tracing them costs "));
    CHECK(memtrace.errors().find("calls/s") < memtrace.errors().find("attached to"));
    Json overhead;
    while (overhead.is_null()) {
        memtrace.send_signal(SIGUSR1);
        Json record;
        do
            record = Json::parse(memtrace.read_line());
        while (record.at("type") != "report");
        overhead = record.at("overhead");
    }
    INFO(overhead.dump());
    CHECK(overhead.at("hits_per_second").get<int64_t>() > 1000);
    CHECK(overhead.at("core_share").get<double>() > 0.001);
    CHECK(overhead.at("core_share").get<double>() < 2.5);
    CHECK(overhead.at("max_core_share").is_null());
    memtrace.send_signal(SIGINT);
    CHECK(memtrace.wait() == 0);
}

TEST_CASE("a budget below the price of the traps ends the tracing, and the resident set is still told", "[e2e][cost]") {
    Workload churner(workload_path("churner"), {"1"});
    const bool is_counted_before = GENERATE(true, false);
    // A command cannot be counted beforehand: it is found out while it runs.
    std::vector<std::string> options = {"--max-overhead", "0.01%", "1"};
    if (!is_counted_before)
        options.insert(options.end(), {"--", "/bin/sh", "-c", "exec " + workload_path("churner") + " 1 >/dev/null"});
    else
        options.insert(options.end(), {"-p", std::to_string(churner.pid())});
    Memtrace memtrace(options);
    memtrace.wait_attached();
    Json report = memtrace.next("report");
    while (report.at("stopped").is_null())
        report = memtrace.next("report");
    CHECK_THAT(report.at("stopped").at("reason").get<std::string>(), ContainsSubstring(" are allowed"));
    CHECK(report.at("stopped").at("figures").size() > 0);
    CHECK(report.at("memory").at("rss_bytes").get<int64_t>() > 0);
    CHECK(report.at("memory").at("mapped_bytes").get<int64_t>() > report.at("memory").at("rss_bytes").get<int64_t>());
    const Json later = memtrace.next("report");
    CHECK(later.at("heap").at("allocations") == report.at("heap").at("allocations"));
    CHECK(later.at("stopped").at("elapsed_ns") == report.at("stopped").at("elapsed_ns"));
    memtrace.child().send_signal(SIGINT);
    if (!is_counted_before) memtrace.child().send_signal(SIGINT);
    memtrace.wait();
    CHECK_THAT(memtrace.child().errors(), ContainsSubstring("the probes are taken away"));
}

TEST_CASE("a budget that is large enough records every block", "[e2e][cost]") {
    Workload workload(workload_path("libc_cases"));
    std::vector<std::string> arguments = on_demand("session", workload.pid());
    arguments.insert(arguments.begin(), {"--max-overhead", "100%"});
    Memtrace memtrace(arguments);
    memtrace.wait_attached();
    Json truth;
    for (size_t i = 0; i < cases_of(workload_path("libc_cases")).size(); ++i)
        truth = workload.go();
    const Json report = memtrace.report();
    check_truth(truth, report);
    CHECK(report.at("accuracy").at("sampling_mean_bytes") == 0);
    CHECK(report.at("stopped").is_null());
    CHECK(memtrace.stop().status == 0);
}

TEST_CASE("list --placement tells where each probe goes", "[e2e][cost]") {
    require_root();
    Workload workload(workload_path("libc_cases"));
    const Finished list = run_to_end({memtrace_path(), "list", "--placement", "-p", std::to_string(workload.pid())});
    INFO(list.output << list.errors);
    CHECK(list.status == 0);
    const std::string malloc_line = line_with(list.output, " malloc+0x");
    CHECK_THAT(malloc_line, ContainsSubstring("libc.so.6"));
    CHECK_THAT(malloc_line, ContainsSubstring("emulated"));
    CHECK_THAT(malloc_line, ContainsSubstring(" us"));
    CHECK_THAT(line_with(list.output, " free+0x"), ContainsSubstring("not needed"));
    CHECK_THAT(line_with(list.output, " munmap+0x"), ContainsSubstring("stepped"));
    const Finished none = run_to_end({memtrace_path(), "list", "--placement", "-p", "999999999"});
    CHECK(none.status != 0);
    CHECK(none.output.empty());
}

TEST_CASE("doctor tells the tables' sizes: at most 80 bytes a live block", "[e2e][cost]") {
    require_root();
    for (const char* limit : {"1048576", "10000000"}) {
        const Finished doctor = run_to_end({memtrace_path(), "--max-live-blocks", limit, "doctor"});
        INFO(doctor.output << doctor.errors);
        CHECK(doctor.status == 0);
        CHECK_THAT(doctor.output, ContainsSubstring("live_blocks"));
        const std::string line = line_with(doctor.output, "a live block takes ");
        REQUIRE_FALSE(line.empty());
        const double bytes = std::stod(line.substr(std::string("a live block takes ").size()));
        CHECK(bytes >= 64);
        CHECK(bytes <= 80);
    }
}
