// The accounting cases on every allocator that is installed, in each way in which a program can come to it
// (tests/workloads/allocators.cmake): after each case the report equals the truth that the program prints.
#include <algorithm>
#include <fstream>

#include "catch.hpp"
#include "e2e/check_cases.hpp"

using namespace memtrace::e2e;

namespace {

/// One line of allocators.jsonl.
struct Combination {
    std::string allocator;
    std::string way;
    std::string program;
    std::vector<std::string> environment;
    std::vector<std::string> without;  // cases that this allocator does not have
    std::string missing;               // why it does not exist here; the rest is then empty

    std::string name() const { return allocator + ", " + way + ", " + program; }
};

std::vector<Combination> combinations_of(const std::string& allocator) {
    std::ifstream lines(workload_path("allocators.jsonl"));
    std::vector<Combination> found;
    for (std::string line; std::getline(lines, line);) {
        const Json entry = Json::parse(line);
        if (entry.at("allocator") != allocator) continue;
        found.push_back({entry.at("allocator"), entry.at("way"), entry.value("program", ""),
                         entry.value("environment", std::vector<std::string>()),
                         entry.value("without", std::vector<std::string>()), entry.value("missing", "")});
    }
    return found;
}

std::vector<std::string> cases_to_run(const Combination& combination) {
    std::vector<std::string> cases = cases_of(workload_path(combination.program));
    std::erase_if(cases, [&](const std::string& name) {
        return std::find(combination.without.begin(), combination.without.end(), name) != combination.without.end();
    });
    return cases;
}

CaseRun run_of(const Combination& combination) {
    return {workload_path(combination.program), cases_to_run(combination), combination.environment};
}

/// Each way is a section of its own.
void check_every_way(const std::string& allocator) {
    const std::vector<Combination> combinations = combinations_of(allocator);
    REQUIRE(!combinations.empty());
    for (const Combination& combination : combinations) {
        DYNAMIC_SECTION(combination.name()) {
            if (!combination.missing.empty())
                WARN("skipped: " << allocator << ", " << combination.way << ": " << combination.missing);
            else
                check_cases(run_of(combination), rungs().front());
        }
    }
}

/// The last one that is linked in the usual way: of two, the C++ program. On the rungs that check_every_way leaves out.
void check_other_rungs(const std::string& allocator) {
    const std::vector<Combination> all = combinations_of(allocator);
    const auto linked =
        std::find_if(all.rbegin(), all.rend(), [](const Combination& one) { return one.way == "linked"; });
    if (linked == all.rend()) return;
    CaseRun run = run_of(*linked);
    run.has_one_report = true;
    on_every_rung([&](const std::string& rung) {
        if (rung != rungs().front()) check_cases(run, rung);
    });
}

}  // namespace

TEST_CASE("glibc: every way is exact", "[e2e][allocators]") {
    check_every_way("glibc");
}

TEST_CASE("jemalloc: every way is exact", "[e2e][allocators]") {
    check_every_way("jemalloc");
}

TEST_CASE("tcmalloc: every way is exact", "[e2e][allocators]") {
    check_every_way("tcmalloc");
}

TEST_CASE("tcmalloc_minimal: every way is exact", "[e2e][allocators]") {
    check_every_way("tcmalloc_minimal");
}

TEST_CASE("mimalloc: every way is exact", "[e2e][allocators]") {
    check_every_way("mimalloc");
}

TEST_CASE("snmalloc: every way is exact", "[e2e][allocators]") {
    check_every_way("snmalloc");
}

TEST_CASE("musl: every way is exact", "[e2e][allocators]") {
    check_every_way("musl");
}

TEST_CASE("dietlibc: every way is exact", "[e2e][allocators]") {
    check_every_way("dietlibc");
}

TEST_CASE("rust: every way is exact", "[e2e][allocators]") {
    check_every_way("rust");
}

TEST_CASE("a program that defines malloc itself is traced", "[e2e][allocators]") {
    check_every_way("own malloc");
}

TEST_CASE("plugins with allocators of their own come and go", "[e2e][allocators]") {
    for (const char* allocator : {"bump in a plugin", "jemalloc in a plugin"})
        check_every_way(allocator);
}

TEST_CASE("what is linked with an allocator is exact on every rung", "[e2e][allocators]") {
    for (const char* allocator : {"jemalloc", "tcmalloc", "tcmalloc_minimal", "mimalloc", "musl"}) {
        DYNAMIC_SECTION(allocator) {
            check_other_rungs(allocator);
        }
    }
}
