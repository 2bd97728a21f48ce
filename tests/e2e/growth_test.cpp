// `--growth` against memory that the program takes of each kind.
#include <csignal>
#include <map>

#include "catch.hpp"
#include "e2e/memtrace.hpp"
#include "e2e/series.hpp"

using namespace memtrace::e2e;

namespace {

constexpr int64_t mib = 1 << 20;

const Json& use_of(const Json& growth, const std::string& use) {
    for (const Json& entry : growth.at("uses"))
        if (entry.at("use") == use) return entry;
    throw std::runtime_error("no use " + use);
}

pid_t pid_of(Child& program) {
    const std::string ready = program.read_line();
    REQUIRE(ready.starts_with("ready "));
    return std::stoi(ready.substr(6));
}

int64_t rss_after(Child& program, const std::string& command) {
    program.write_line(command);
    return Json::parse(program.read_line()).at("rss").get<int64_t>();
}

}  // namespace

TEST_CASE("--growth tells what grows, by what it is for", "[e2e][growth]") {
    Child program({workload_path("growth_cases")});
    const pid_t pid = pid_of(program);
    // Its first print takes memory of its own.
    rss_after(program, "look");
    const int64_t before_bytes = rss_after(program, "look");
    Child memtrace({memtrace_path(), "-p", std::to_string(pid), "--growth", "--format", "json", "100ms"});
    const Json first = Json::parse(memtrace.read_line());
    CHECK(first.at("rss_bytes").get<int64_t>() == before_bytes);
    CHECK(first.at("rss_growth_bytes") == 0);
    const int64_t after_bytes = rss_after(program, "grow");
    const Json later = next_from_now(memtrace);
    CHECK(later.at("rss_growth_bytes") == after_bytes - before_bytes);
    const std::map<std::string, int64_t> grown = {{"main_heap", 8}, {"arenas", 6}, {"anonymous", 12},
                                                  {"shared", 5},    {"files", 3},  {"stacks", 4}};
    int64_t sum_bytes = 0;
    for (const Json& entry : later.at("uses"))
        sum_bytes += entry.at("rss_growth_bytes").get<int64_t>();
    CHECK(sum_bytes == after_bytes - before_bytes);
    for (const auto& [use, size] : grown) {
        INFO(use << ' ' << use_of(later, use).dump());
        const auto growth_bytes = use_of(later, use).at("rss_growth_bytes").get<int64_t>();
        CHECK(growth_bytes >= size * mib - mib / 8);
        CHECK(growth_bytes <= size * mib + mib / 2);
        CHECK(use_of(later, use).at("mapped_growth_bytes").get<int64_t>() >= growth_bytes - mib / 8);
    }
    CHECK(use_of(later, "gc_heap").at("mapped_bytes") == 0);
    memtrace.send_signal(SIGINT);
    CHECK(memtrace.wait() == 0);
    program.write_line("quit");
    CHECK(program.wait() == 0);
}

TEST_CASE("--growth for a person, until its count or the process's end", "[e2e][growth]") {
    Child program({workload_path("growth_cases")});
    const pid_t pid = pid_of(program);
    const Finished two = run_to_end({memtrace_path(), "-p", std::to_string(pid), "--growth", "10ms", "1"});
    CHECK(two.status == 0);
    CHECK_THAT(two.output, ContainsSubstring("main heap (brk)") && ContainsSubstring("since the first look"));
    Child memtrace({memtrace_path(), "-p", std::to_string(pid), "--growth", "10ms"});
    memtrace.read_line();
    program.write_line("quit");
    CHECK(program.wait() == 0);
    CHECK(memtrace.wait() == 0);
    CHECK(run_to_end({memtrace_path(), "-p", "999999999", "--growth"}).status == 3);
    CHECK(run_to_end({memtrace_path(), "--growth", "--", "true"}).status == 2);
}
