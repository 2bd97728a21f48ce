// memtrace for a long time (make soak): what it takes itself stays what it is, and the figures stay exact, while
// workers of a server under load come and go; and threads at full speed for minutes. Hidden: the suite has no hour.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "catch.hpp"
#include "e2e/records.hpp"

using namespace memtrace::e2e;
namespace fs = std::filesystem;

namespace {

std::chrono::seconds soak_time() {
    const char* chosen = std::getenv("MEMTRACE_TEST_SOAK_SECONDS");
    return std::chrono::seconds(chosen != nullptr ? std::atoi(chosen) : 3600);
}

/// What memtrace itself takes.
struct Usage {
    int64_t rss_bytes = 0;
    int64_t descriptors = 0;
    int64_t mappings = 0;
};

Usage usage_of(pid_t pid) {
    const fs::path proc = "/proc/" + std::to_string(pid);
    Usage usage;
    std::ifstream statm(proc / "statm");
    statm >> usage.rss_bytes >> usage.rss_bytes;
    usage.rss_bytes *= 4096;
    usage.descriptors = std::distance(fs::directory_iterator(proc / "fd"), fs::directory_iterator());
    std::ifstream maps(proc / "maps");
    for (std::string line; std::getline(maps, line);)
        ++usage.mappings;
    return usage;
}

void check_exact(const Json& truth, const Json& report) {
    INFO(truth.dump());
    INFO(report.at("accuracy").dump());
    const Json& heap = report.at("heap");
    REQUIRE(report.at("accuracy").at("complete") == true);
    REQUIRE(heap.at("allocations") == truth.at("allocations"));
    REQUIRE(heap.at("frees") == truth.at("frees"));
    REQUIRE(heap.at("live_bytes") == truth.at("live_bytes"));
    REQUIRE(heap.at("ended_bytes") == truth.at("ended_bytes"));
}

}  // namespace

TEST_CASE("an hour of a server whose workers come and go", "[.soak]") {
    require_root();
    Workload server(workload_path("prefork_server"), {"4", "5000"});
    Memtrace memtrace({"--from-birth", "-f", "-p", std::to_string(server.pid()), "-T", "0", "3600"});
    memtrace.wait_attached();
    const pid_t pid = memtrace.child().pid();
    const auto begin = std::chrono::steady_clock::now();
    const auto end = begin + soak_time();
    const auto warm = begin + soak_time() / 4;
    Usage first;
    int ended = 0;
    // The server has room for 4,096 workers in all.
    while (std::chrono::steady_clock::now() < end && ended < 4000) {
        const Json truth = tell(server, "load 1000");
        check_exact(truth, memtrace.report());
        ended = truth.at("ended").get<int>();
        if (std::chrono::steady_clock::now() < warm || first.rss_bytes == 0) first = usage_of(pid);
    }
    const Usage last = usage_of(pid);
    WARN(ended << " workers; resident " << first.rss_bytes << " then " << last.rss_bytes << ", descriptors "
               << first.descriptors << " then " << last.descriptors << ", mappings " << first.mappings << " then "
               << last.mappings);
    CHECK(ended > 3);
    CHECK(last.rss_bytes < first.rss_bytes + first.rss_bytes / 10);
    // Workers that have just come or gone have some open; a leak would be one for each of all that ended.
    CHECK(last.descriptors <= first.descriptors + 16);
    CHECK(last.mappings <= first.mappings + 16);
    CHECK(memtrace.stop().status == 0);
    CHECK(server.quit(0) == 0);
}

TEST_CASE("threads at full speed for minutes are counted to the byte", "[.soak]") {
    require_root();
    // Minutes, of an hour.
    const auto end = std::chrono::steady_clock::now() + soak_time() / 10;
    constexpr size_t most_rounds = 500;
    const std::vector<std::string> cases = cases_of(workload_path("thread_cases"));
    std::vector<std::string> arguments;
    while (arguments.size() < most_rounds * cases.size())
        arguments.insert(arguments.end(), cases.begin(), cases.end());
    Workload workload(workload_path("thread_cases"), arguments);
    Memtrace memtrace(on_demand("session", workload.pid()));
    memtrace.wait_attached();
    size_t done = 0;
    for (; done < cases.size() || (done < arguments.size() && std::chrono::steady_clock::now() < end); ++done) {
        const Json truth = workload.go();
        check_truth(truth, memtrace.report());
    }
    WARN(done << " cases");
    CHECK(memtrace.stop().status == 0);
    CHECK(workload.quit(0) == 0);
}
