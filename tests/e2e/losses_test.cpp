// Each table made too small on purpose: what does not fit is counted, said in the first line, and the rest stays exact.
#include <signal.h>

#include "catch.hpp"
#include "e2e/memtrace.hpp"

using namespace memtrace::e2e;

namespace {

struct LossRun {
    Json truth;
    Json report;
    int status = 0;
};

LossRun run_with(const std::string& workload_case, std::vector<std::string> options) {
    Workload workload(workload_path("stack_cases"), {workload_case});
    options.insert(options.end(), {"-T", "0", "-p", std::to_string(workload.pid()), "3600"});
    Memtrace memtrace(options);
    memtrace.wait_attached();
    LossRun run;
    run.truth = workload.go();
    run.report = memtrace.report();
    run.status = memtrace.stop().status;
    CHECK(workload.quit(2) == 2);
    return run;
}

int64_t loss(const LossRun& run, const char* name) {
    return run.report.at("accuracy").at(name);
}

}  // namespace

TEST_CASE("blocks that the live table has no room for are counted", "[e2e][losses]") {
    const LossRun run = run_with("many_blocks", {"--max-live-blocks", "1000"});
    CHECK(run.report.at("accuracy").at("complete") == false);
    CHECK(loss(run, "blocks_not_recorded") > 0);
    CHECK(run.report.at("heap").at("allocations").get<int64_t>() + loss(run, "blocks_not_recorded") ==
          run.truth.at("allocations"));
    CHECK(run.status == 0);
}

TEST_CASE("--strict makes a loss status 1", "[e2e][losses]") {
    CHECK(run_with("many_blocks", {"--max-live-blocks", "1000", "--strict"}).status == 1);
    CHECK(run_with("many_blocks", {"--strict"}).status == 0);
}

TEST_CASE("stacks that the table of call sites has no room for are counted, the sums stay exact", "[e2e][losses]") {
    const LossRun run = run_with("a_thousand_stacks", {"--max-sites", "100"});
    CHECK(run.report.at("accuracy").at("complete") == false);
    CHECK(loss(run, "stacks_not_recorded") > 0);
    CHECK(run.report.at("heap").at("live_bytes") == run.truth.at("live_bytes"));
    CHECK(run.report.at("heap").at("allocations") == run.truth.at("allocations"));
    CHECK(run.report.at("sites_total").get<int>() <= 101);
}

TEST_CASE("stacks that the ring buffer has no room for are counted, the sums stay exact", "[e2e][losses]") {
    Workload workload(workload_path("stack_cases"), {"a_thousand_stacks"});
    Memtrace memtrace({"--ring-size", "4096", "-T", "0", "-p", std::to_string(workload.pid()), "3600"});
    memtrace.wait_attached();
    memtrace.child().send_signal(SIGSTOP);  // so that nobody empties the ring
    const Json truth = workload.go();
    memtrace.child().send_signal(SIGCONT);
    const Json report = memtrace.report();
    INFO(report.at("accuracy").dump());
    CHECK(report.at("accuracy").at("complete") == false);
    CHECK(report.at("accuracy").at("stacks_not_recorded").get<int>() > 0);
    CHECK(report.at("heap").at("live_bytes") == truth.at("live_bytes"));
    CHECK(memtrace.stop().status == 0);
}

TEST_CASE("a stack that is deeper than --max-stack says so and is no loss", "[e2e][losses]") {
    const LossRun run = run_with("recursion_of_1000_frames", {"--max-stack", "7"});
    CHECK(run.report.at("accuracy").at("complete") == true);
    CHECK(loss(run, "stacks_truncated") == 1);
    CHECK(run.report.at("sites").at(0).at("frames").size() == 7);
}

TEST_CASE("a text report with a loss starts with it and names the option to raise", "[e2e][losses]") {
    require_root();
    Workload workload(workload_path("stack_cases"), {"many_blocks"});
    Child memtrace({memtrace_path(), "--max-live-blocks", "1000", "-p", std::to_string(workload.pid()), "3600"});
    REQUIRE(memtrace.wait_for_error_text("attached to"));
    workload.go();
    memtrace.send_signal(SIGINT);
    CHECK(memtrace.wait() == 0);
    CHECK(memtrace.output().starts_with("NOT COMPLETE"));
    CHECK_THAT(memtrace.output(), ContainsSubstring("--max-live-blocks"));
}
