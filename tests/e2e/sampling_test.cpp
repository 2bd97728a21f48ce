// --sample: with every byte sampled the figures are the full ones; with hardly any, what allocators do inside is still
// theirs.
#include "catch.hpp"
#include "e2e/check_cases.hpp"

using namespace memtrace::e2e;

namespace {

void check_exact(const std::string& program, const std::vector<std::string>& cases = {},
                 const std::vector<std::string>& environment = {}) {
    on_every_rung([&](const std::string& rung) {
        if (rung == "perf") return;  // its programs are those of multi
        check_cases({workload_path(program), cases, environment, {"--sample", "1"}}, rung);
    });
}

int64_t number(const Json& object, const char* name) {
    return object.at(name).get<int64_t>();
}

/// Runs all cases of `program` with next to nothing sampled: its mappings are exact, and the heap is next to empty.
void check_unsampled(const std::string& program, const std::string& rung) {
    INFO(program);
    Workload workload(workload_path(program));
    std::vector<std::string> arguments = on_demand(rung, workload.pid());
    arguments.insert(arguments.begin(), {"--sample", "1G"});
    Memtrace memtrace(arguments);
    memtrace.wait_attached();
    Json truth;
    for (size_t i = 0; i < cases_of(workload_path(program)).size(); ++i)
        truth = workload.go();
    const Json report = memtrace.report();
    INFO(report.at("accuracy").dump() << report.at("heap").dump());
    CHECK(report.at("accuracy").at("complete") == true);
    CHECK(report.at("accuracy").at("unknown_frees").is_null());
    CHECK(report.at("accuracy").at("sampling_mean_bytes") == 1 << 30);
    CHECK(report.at("heap").at("estimate") == true);
    CHECK(number(report.at("mappings"), "mapped_bytes") == number(truth, "mapped_bytes"));
    CHECK(number(report.at("mappings"), "unmapped_bytes") == number(truth, "unmapped_bytes"));
    CHECK(memtrace.stop().status == 0);
    CHECK(workload.quit(7) == 7);
}

}  // namespace

TEST_CASE("a sample of every byte is exact for all of libc", "[e2e][sampling]") {
    check_exact("libc_cases");
}

TEST_CASE("a sample of every byte is exact for operator new and its exceptions", "[e2e][sampling]") {
    check_exact("cxx_cases");
}

TEST_CASE("a sample of every byte is exact for threads and reallocs that race", "[e2e][sampling]") {
    check_exact("thread_cases");
    check_exact("realloc_race", {}, {"GLIBC_TUNABLES=glibc.malloc.tcache_count=0"});
}

TEST_CASE("a sample of every byte is exact for what interrupts malloc, and for mappings", "[e2e][sampling]") {
    check_exact("inside_cases");
    check_exact("fiber_cases");
    check_exact("mapping_cases");
}

TEST_CASE("what an unsampled call maps inside is no mapping of the program", "[e2e][sampling]") {
    on_every_rung([](const std::string& rung) {
        if (rung == "perf") return;
        for (const char* program : {"libc_cases", "cxx_cases", "mapping_cases", "fiber_cases"})
            check_unsampled(program, rung);
    });
}

TEST_CASE("a sample of a program's calls is within four errors of the truth", "[e2e][sampling]") {
    on_every_rung([](const std::string& rung) {
        if (rung == "perf") return;
        Workload workload(workload_path("thread_cases"));
        std::vector<std::string> arguments = on_demand(rung, workload.pid());
        arguments.insert(arguments.begin(), {"--sample", "2K"});
        Memtrace memtrace(arguments);
        memtrace.wait_attached();
        Json truth;
        for (size_t i = 0; i < cases_of(workload_path("thread_cases")).size(); ++i)
            truth = workload.go();
        const Json report = memtrace.report();
        const Json& heap = report.at("heap");
        INFO(heap.dump() << " truth " << truth.dump());
        CHECK(std::abs(number(heap, "live_bytes") - number(truth, "live_bytes")) <=
              4 * number(heap, "error_bytes") + 4096);
        for (const Json& site : report.at("sites"))
            if (site.at("kind") == "heap") CHECK(site.at("estimate") == true);
        CHECK(memtrace.stop().status == 0);
    });
}
