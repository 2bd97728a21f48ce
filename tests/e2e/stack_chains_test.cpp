// Stacks that gdb cannot walk, against the chain of calls that the workload says it made.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "catch.hpp"
#include "e2e/gdb_stacks.hpp"

using namespace memtrace::e2e;

namespace {

constexpr const char* marked_size = "1000001";

/// The one site of `report` with a block of the marked size.
Json marked_site(const Json& report) {
    for (const Json& site : report.at("sites"))
        if (site.at("kind") == "heap" && site.at("live_bytes") == std::stoll(marked_size)) return site;
    return {};
}

std::vector<Json> functions_of(const Json& site) {
    std::vector<Json> names;
    for (const Json& frame : site.at("frames"))
        if (frame.at("inlined") == false) names.push_back(frame.at("function"));
    return names;
}

/// The first of `chain` that `names` does not have in its turn. Go adds the calling convention to a name: f.abi0.
std::optional<Json> first_missing(const Json& chain, const std::vector<Json>& names) {
    auto next = names.begin();
    for (const Json& wanted : chain) {
        const auto function = wanted.get<std::string>();
        next = std::find_if(next, names.end(), [&](const Json& name) {
            return name == function || (name.is_string() && name.get<std::string>().starts_with(function + ".abi"));
        });
        if (next == names.end()) return wanted;
        ++next;
    }
    return std::nullopt;
}

struct Chain {
    Json expected;
    Json site;
};

Chain run_chain(const std::string& path) {
    require_root();
    Workload workload(path);
    Memtrace memtrace({"-p", std::to_string(workload.pid()), "-T", "0", "--min-size", marked_size, "3600"});
    memtrace.wait_attached();
    Json expected = workload.go();
    const Json report = memtrace.report();
    CHECK(memtrace.stop().status == 0);
    return {expected, marked_site(report)};
}

}  // namespace

TEST_CASE("code without CFI and written code are walked by frame pointer to the bottom", "[e2e][chains]") {
    const Chain chain = run_chain(workload_path("stacks/stacks_chain"));
    REQUIRE_FALSE(chain.site.is_null());
    const std::vector<Json> names = functions_of(chain.site);
    INFO(Json(names).dump());
    REQUIRE(names.size() > chain.expected.size());
    CHECK(std::equal(chain.expected.begin(), chain.expected.end(), names.begin()));
    CHECK(names.back() == "_start");
    CHECK(chain.site.at("stack_error").is_null());
}

TEST_CASE("a stack that goes from Go to C is whole", "[e2e][chains]") {
    const std::string path = workload_path("stacks/stacks_chain_go");
    if (!std::filesystem::exists(path)) {
        WARN("skipped, there was no Go to build " << path);
        return;
    }
    const Chain chain = run_chain(path);
    REQUIRE_FALSE(chain.site.is_null());
    const std::vector<Json> names = functions_of(chain.site);
    INFO(Json(names).dump());
    CHECK(first_missing(chain.expected, names).value_or("") == "");
    CHECK(names.back().get<std::string>().starts_with("runtime.goexit"));
    CHECK(chain.site.at("stack_error").is_null());
}

TEST_CASE("stacks through the code that node has compiled reach the bottom", "[e2e][chains]") {
    require_root();
    if (!has_program("node")) {
        WARN("skipped, there is no node");
        return;
    }
    const char* script =
        "const zlib = require('zlib');"
        "function work(depth) { return depth ? work(depth - 1) : zlib.deflateSync('x'.repeat(5000)).length; }"
        "console.log('ready ' + process.pid);"
        "require('readline').createInterface({input: process.stdin}).on('line', () => {"
        "  let sum = 0; for (let i = 0; i < 3000; ++i) sum += work(i % 20); console.log(sum); });";
    Workload node("node", {"-e", script});
    Memtrace memtrace({"-p", std::to_string(node.pid()), "-T", "0", "3600"});
    memtrace.wait_attached();
    node.child().write_line("go");
    node.child().read_line();
    const Json report = memtrace.report();
    CHECK(memtrace.stop().status == 0);
    CHECK(report.at("sites").size() > 100);
    const std::set<Json> bottoms = {"_start", "clone3", "__clone3", "clone"};
    std::string broken;
    int64_t broken_allocations = 0;
    for (const Json& site : report.at("sites")) {
        const std::vector<Json> names = functions_of(site);
        if (site.at("stack_error").is_null() && !names.empty() && bottoms.contains(names.back())) continue;
        broken_allocations += site.at("allocations").get<int64_t>();
        broken += site.at("stack_error").dump() + ' ' + Json(names).dump() + '\n';
    }
    // While node replaces optimized frames by others, rbp leads to neither.
    INFO(broken);
    CHECK(broken_allocations * 1000 <= report.at("heap").at("allocations").get<int64_t>());
}
