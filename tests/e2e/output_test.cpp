// Options that choose what is shown and when, signals that ask for it, and the text report.
#include <signal.h>

#include <algorithm>
#include <sstream>

#include "catch.hpp"
#include "e2e/memtrace.hpp"

using namespace memtrace::e2e;

namespace {

std::vector<std::string> options_for(const Workload& workload, std::vector<std::string> options) {
    options.insert(options.begin(), {"-p", std::to_string(workload.pid())});
    return options;
}

/// The report of stack_cases' `many_blocks` and friends under these options.
Json report_of(const std::string& program, const std::vector<std::string>& cases, std::vector<std::string> options) {
    Workload workload(workload_path(program), cases);
    options.emplace_back("3600");
    Memtrace memtrace(options_for(workload, std::move(options)));
    memtrace.wait_attached();
    for (size_t i = 0; i < cases.size(); ++i)
        workload.go();
    Json report = memtrace.report();
    CHECK(memtrace.stop().status == 0);
    CHECK(workload.quit(0) == 0);
    return report;
}

size_t count_of_kind(const Json& report, const std::string& kind) {
    return static_cast<size_t>(std::count_if(report.at("sites").begin(), report.at("sites").end(),
                                             [&](const Json& site) { return site.at("kind") == kind; }));
}

/// A text report of a program that leaked, with `environment` and `options` added.
std::string text_report(const std::vector<std::string>& options, std::vector<std::string> environment = {}) {
    require_root();
    Workload workload(workload_path("libc_cases"), {"malloc_lives", "calloc_lives"});
    std::vector<std::string> command = {memtrace_path(), "-p", std::to_string(workload.pid()), "3600"};
    command.insert(command.end(), options.begin(), options.end());
    Child memtrace(command, std::move(environment));
    REQUIRE(memtrace.wait_for_error_text("attached to"));
    workload.go();
    workload.go();
    memtrace.send_signal(SIGINT);
    CHECK(memtrace.wait() == 0);
    return memtrace.output();
}

}  // namespace

TEST_CASE("INTERVAL and COUNT give so many reports and then the end", "[e2e][output]") {
    Workload workload(workload_path("libc_cases"), {"malloc_lives"});
    Memtrace memtrace(options_for(workload, {"0.2", "3"}));
    memtrace.wait_attached();
    workload.go();
    const MemtraceEnd end = memtrace.wait();
    CHECK(end.status == 0);
    uint64_t sequence = 0;
    for (const Json& record : end.records) {
        if (record.at("type") != "report") continue;
        CHECK(record.at("seq") == ++sequence);
        CHECK(record.at("final") == (sequence == 3));
    }
    CHECK(sequence == 3);
    CHECK(end.records.front().at("type") == "start");
    CHECK(end.records.front().at("schema") == 1);
    CHECK(end.records.back().at("type") == "end");
    CHECK(end.records.back().at("reason") == "count");
    CHECK(end.records.back().at("status") == 0);
    CHECK(workload.quit(0) == 0);
}

TEST_CASE("SIGINT and SIGTERM end with a last report and status 0", "[e2e][output]") {
    for (const int number : {SIGINT, SIGTERM}) {
        Workload workload(workload_path("libc_cases"), {"malloc_lives"});
        Memtrace memtrace(options_for(workload, {"3600"}));
        memtrace.wait_attached();
        workload.go();
        memtrace.child().send_signal(number);
        const MemtraceEnd end = memtrace.wait();
        CHECK(end.status == 0);
        CHECK(end.final_report().at("heap").at("live_bytes") == 1000);
        CHECK(end.records.back().at("reason") == "signal");
        CHECK(workload.child().is_running());
        CHECK(workload.quit(0) == 0);
    }
}

TEST_CASE("growth counts from the report before and from the baseline", "[e2e][output]") {
    Workload workload(workload_path("stack_cases"), {"many_blocks", "many_blocks", "many_blocks"});
    Memtrace memtrace(options_for(workload, {"3600"}));
    memtrace.wait_attached();
    const int64_t bytes_a_run = workload.go().at("live_bytes");
    Json site = memtrace.report().at("sites").at(0);
    CHECK(site.at("growth_bytes") == bytes_a_run);
    CHECK(site.at("growth_since_baseline_bytes") == bytes_a_run);
    memtrace.child().send_signal(SIGUSR2);
    memtrace.report();
    memtrace.report();  // signals that arrive together are handled in the order of their numbers: USR1 before USR2
    workload.go();
    site = memtrace.report().at("sites").at(0);
    CHECK(site.at("growth_bytes") == bytes_a_run);
    CHECK(site.at("growth_since_baseline_bytes") == bytes_a_run);
    workload.go();
    site = memtrace.report().at("sites").at(0);
    CHECK(site.at("growth_bytes") == bytes_a_run);
    CHECK(site.at("growth_since_baseline_bytes") == 2 * bytes_a_run);
    CHECK(memtrace.stop().status == 0);
}

TEST_CASE("--top limits the call sites of each kind, and the sums stay whole", "[e2e][output]") {
    const Json report = report_of("stack_cases", {"a_thousand_stacks"}, {"-T", "4"});
    CHECK(count_of_kind(report, "heap") == 4);
    CHECK(report.at("sites_total") == 1024);
    CHECK(report.at("heap").at("live_blocks") == 1024);
}

TEST_CASE("--sort orders the call sites", "[e2e][output]") {
    const std::vector<std::string> cases = {"a_thousand_stacks", "many_blocks"};
    for (const auto& [order, key] : {std::pair("live", "live_bytes"), std::pair("count", "live_blocks")}) {
        INFO(order);
        const Json report = report_of("stack_cases", cases, {"-T", "0", "--sort", order});
        const Json& sites = report.at("sites");
        CHECK(std::is_sorted(sites.begin(), sites.end(),
                             [key = key](const Json& a, const Json& b) { return a.at(key) > b.at(key); }));
    }
}

TEST_CASE("--older leaves out young blocks", "[e2e][output]") {
    const Json young = report_of("libc_cases", {"malloc_lives"}, {"-o", "1h"});
    CHECK(count_of_kind(young, "heap") == 0);
    const Json old = report_of("libc_cases", {"malloc_lives"}, {"-o", "0"});
    CHECK(count_of_kind(old, "heap") == 1);
}

TEST_CASE("blocks outside --min-size and --max-size are not recorded", "[e2e][output]") {
    const Json report = report_of("libc_cases", {"malloc_lives", "calloc_lives"}, {"-z", "101", "-Z", "500"});
    CHECK(report.at("heap").at("allocations") == 7);  // calloc(3, 111); malloc(100) and calloc(10, 10) are too small
    CHECK(report.at("heap").at("allocated_bytes") == 7 * 333);
    CHECK(report.at("accuracy").at("unknown_frees").is_null());
    CHECK(report.at("accuracy").at("complete") == true);
}

TEST_CASE("--show-allocs lists each block with its size and age", "[e2e][output]") {
    const Json report = report_of("libc_cases", {"malloc_lives"}, {"-a"});
    const Json& blocks = report.at("sites").at(0).at("blocks");
    REQUIRE(blocks.size() == 10);
    for (const Json& block : blocks) {
        CHECK(block.at("size") == 100);
        CHECK(block.at("address").get<std::string>().starts_with("0x"));
        CHECK(block.at("age_ns").get<int64_t>() > 0);
    }
}

TEST_CASE("--trace prints each allocation and free", "[e2e][output]") {
    Workload workload(workload_path("libc_cases"), {"malloc_lives", "malloc_is_freed"});
    Memtrace memtrace(options_for(workload, {"-t", "3600"}));
    memtrace.wait_attached();
    workload.go();
    workload.go();
    const MemtraceEnd end = memtrace.stop();
    int allocations = 0;
    int frees = 0;
    for (const Json& record : end.records) {
        if (record.at("type") == "alloc") ++allocations;
        if (record.at("type") == "free") ++frees;
        if (record.at("type") == "alloc") CHECK(record.at("pid") == workload.pid());
    }
    CHECK(allocations == 60);
    CHECK(frees == 50);
}

TEST_CASE("a C++ method is named as its author wrote it, with file and line", "[e2e][output]") {
    const Json report = report_of("cxx_cases", {"a_method_is_demangled"}, {});
    const Json& frame = report.at("sites").at(0).at("frames").at(0);
    CHECK(frame.at("function") == "leaky::Owner::grow(int)");
    CHECK(frame.at("module").get<std::string>().ends_with("cxx_cases"));
    CHECK(frame.at("file").get<std::string>().ends_with("cxx_cases.cpp"));
    CHECK(frame.at("line").get<int>() > 0);
}

TEST_CASE("a function that was inlined is a frame of its own, before the one that holds its code", "[e2e][output]") {
    const Json report = report_of("cxx_cases", {"an_inlined_method_is_a_frame"}, {});
    const Json& frames = report.at("sites").at(0).at("frames");
    CHECK(frames.at(0).at("function") == "leaky::Owner::fill(int)");
    CHECK(frames.at(0).at("inlined") == true);
    CHECK(frames.at(1).at("function") == "leaky::Owner::refill(int)");
    CHECK(frames.at(1).at("inlined") == false);
    CHECK(frames.at(0).at("offset") == frames.at(1).at("offset"));
    CHECK(frames.at(0).at("line") != frames.at(1).at("line"));
    CHECK(frames.at(0).at("kind") == "native");
}

TEST_CASE("the text report names the call site and has no escape sequences off a terminal", "[e2e][output]") {
    const std::string text = text_report({});
    CHECK_THAT(text, ContainsSubstring("calls_malloc"));
    CHECK_THAT(text, ContainsSubstring("libc_cases"));
    CHECK_THAT(text, ContainsSubstring("1000 B"));
    CHECK_THAT(text, ContainsSubstring("complete"));
    CHECK_THAT(text, !ContainsSubstring("\x1b"));
}

TEST_CASE("colors come with --color always, unless NO_COLOR is set and --color is not", "[e2e][output]") {
    CHECK_THAT(text_report({"--color", "always"}), ContainsSubstring("\x1b["));
    CHECK_THAT(text_report({}, {"NO_COLOR=1"}), !ContainsSubstring("\x1b"));
    CHECK_THAT(text_report({"--color", "never"}), !ContainsSubstring("\x1b"));
}
