// Reports of several processes: what a tree with children that live and end comes to, and what two runs of one binary
// have together.
#include "catch.hpp"
#include "e2e/memtrace.hpp"

using namespace memtrace::e2e;

namespace {

constexpr int64_t shared_bytes = 16 * 4096;

int64_t number(const Json& object, const char* key) {
    return object.at(key).get<int64_t>();
}

std::vector<std::string> all_of(std::vector<std::string> options, const std::vector<std::string>& more) {
    options.insert(options.begin(), more.begin(), more.end());
    return options;
}

/// The one site whose first frame is `function`.
Json site_in(const Json& report, const std::string& function) {
    std::vector<Json> found;
    for (const Json& site : report.at("sites"))
        if (!site.at("frames").empty() && site.at("frames")[0].at("function") == function) found.push_back(site);
    REQUIRE(found.size() == 1);
    return found.front();
}

}  // namespace

TEST_CASE("a tree has what its processes have, each shared page once, and keeps what an ended child allocated",
          "[e2e][scopes]") {
    require_root();
    Workload workload(workload_path("tree_cases"));
    Memtrace memtrace(all_of(on_demand(rungs().front(), workload.pid()), {"-f"}));
    memtrace.wait_attached();
    workload.go();
    for (int forked = 0; forked < 3;)
        if (memtrace.next("process").at("event") == "fork") ++forked;
    workload.go();
    Json report = memtrace.report();
    CHECK(report.at("scope").at("by") == "tree");
    CHECK(report.at("scope").at("pid") == workload.pid());
    CHECK(report.at("scope").at("pids").size() == 4);
    Json site = site_in(report, "child_mallocs");
    CHECK(number(site, "live_bytes") == 60 * 1000);
    CHECK(number(site, "live_blocks") == 60);
    CHECK(number(site, "growth_bytes") == 60 * 1000);
    REQUIRE(site.at("processes").size() == 3);
    CHECK(number(site.at("processes")[0], "live_bytes") == 30 * 1000);
    CHECK(number(site.at("processes")[2], "live_blocks") == 10);
    CHECK(number(site_in(report, "parent_mallocs"), "live_bytes") == 5 * 700);
    CHECK(number(report.at("heap"), "live_bytes") == 60 * 1000 + 5 * 700);
    CHECK(number(report.at("mappings"), "live_bytes") == shared_bytes);
    CHECK(report.at("accuracy").at("complete") == true);
    int64_t live_bytes = 0;
    for (const Json& process : report.at("processes"))
        live_bytes += number(process, "live_bytes");
    CHECK(live_bytes == number(report.at("heap"), "live_bytes"));

    workload.go();
    while (memtrace.next("process").at("event") != "exit")
        continue;
    report = memtrace.report();
    site = site_in(report, "child_mallocs");
    CHECK(number(site, "live_bytes") == 40 * 1000);
    CHECK(number(site, "allocated_bytes") == 60 * 1000);
    CHECK(number(site, "growth_bytes") == -20 * 1000);
    CHECK(number(report.at("heap"), "ended_bytes") == 20 * 1000);
    CHECK(report.at("processes").size() == 4);
    CHECK(number(report.at("mappings"), "live_bytes") == shared_bytes);
    report = memtrace.report();
    CHECK(report.at("processes").size() == 3);
    CHECK(number(report.at("ended_processes"), "count") == 1);
    CHECK(number(report.at("ended_processes"), "ended_blocks") == 20);
    CHECK(number(report.at("heap"), "ended_bytes") == 20 * 1000);
    memtrace.stop();
}

TEST_CASE("one binary in two processes is one exe, and one call site; by process they are apart", "[e2e][scopes]") {
    require_root();
    const std::string by = GENERATE("exe", "all", "process");
    Workload first(workload_path("process_cases"), {"fork_child_allocates_and_frees"});
    Workload second(workload_path("process_cases"), {"fork_child_allocates_and_frees"});
    Memtrace memtrace(
        all_of(on_demand(rungs().front(), first.pid()), {"-p", std::to_string(second.pid()), "--by", by}));
    memtrace.wait_attached();
    first.go();
    second.go();
    const bool is_apart = by == "process";
    const std::vector<Json> reports = memtrace.reports(is_apart ? 2 : 1);
    CHECK(reports.front().at("seq") == reports.back().at("seq"));
    for (const Json& report : reports) {
        CHECK(report.at("scope").at("by") == by);
        if (by == "exe") CHECK(report.at("scope").at("name") == workload_path("process_cases"));
        CHECK(report.at("scope").at("pids").size() == (is_apart ? 1 : 2));
        // It is called from two places.
        const SiteSum sum = sites_called(report, "parent_mallocs");
        CHECK(sum.sites == 2);
        CHECK(sum.live_blocks == (is_apart ? 2 : 4));
        CHECK(report.contains("processes") == !is_apart);
    }
    memtrace.stop();
}
