// The comparison of `memtrace selftest`: exact when all figures agree, and each figure that does not is named.
#include "selftest/comparison.hpp"

#include <nlohmann/json.hpp>

#include "catch.hpp"

using namespace memtrace;
using Json = nlohmann::json;

namespace {

const Json truth = Json::parse(R"({"heap":{"allocated_bytes":100,"allocations":10,"freed_bytes":60,"frees":6,
    "live_bytes":40,"live_blocks":4},"mappings":{"mapped_bytes":8192,"unmapped_bytes":4096},
    "kept_bytes":40,"kept_blocks":4,"unknown_frees":2})");

Json exact_report() {
    return Json::parse(R"({"heap":{"allocated_bytes":100,"allocations":10,"freed_bytes":60,"frees":6,
        "live_bytes":40,"live_blocks":4},"mappings":{"mapped_bytes":8192,"unmapped_bytes":4096},
        "accuracy":{"unknown_frees":2,"blocks_not_recorded":0,"stacks_not_recorded":0,"events_lost":0,
            "returns_missed":0,"frees_missed":0,"reallocs_unresolved":0},
        "sites":[{"live_bytes":30,"live_blocks":3,"frames":[{"function":"selftest_keeps"}]},
                 {"live_bytes":10,"live_blocks":1,"frames":[{"function":"selftest_keeps"}]},
                 {"live_bytes":7,"live_blocks":1,"frames":[{"function":null},{"function":"selftest_keeps"}]},
                 {"live_bytes":7,"live_blocks":1,"frames":[]}]})");
}

}  // namespace

TEST_CASE("a report that says what the program counted is exact", "[selftest]") {
    const Comparison comparison = compare(truth, exact_report());
    CHECK(comparison.differences.empty());
    CHECK(comparison.compared == 17);
}

TEST_CASE("each wrong figure is named with both numbers", "[selftest]") {
    const std::vector<std::string> paths = {"/heap/allocated_bytes",
                                            "/heap/allocations",
                                            "/heap/freed_bytes",
                                            "/heap/frees",
                                            "/heap/live_bytes",
                                            "/heap/live_blocks",
                                            "/mappings/mapped_bytes",
                                            "/mappings/unmapped_bytes",
                                            "/accuracy/unknown_frees",
                                            "/accuracy/blocks_not_recorded",
                                            "/accuracy/stacks_not_recorded",
                                            "/accuracy/events_lost",
                                            "/accuracy/returns_missed",
                                            "/accuracy/frees_missed",
                                            "/accuracy/reallocs_unresolved",
                                            "/sites/1/live_bytes",
                                            "/sites/0/live_blocks"};
    for (const std::string& path : paths) {
        CAPTURE(path);
        Json report = exact_report();
        report[Json::json_pointer(path)] = 5;
        const Comparison comparison = compare(truth, report);
        REQUIRE(comparison.differences.size() == 1);
        CHECK_THAT(comparison.differences.front(), ContainsSubstring(path.substr(path.rfind('/') + 1)));
        CHECK_THAT(comparison.differences.front(), ContainsSubstring("the program counted"));
    }
}

TEST_CASE("what is missing is a difference and no crash", "[selftest]") {
    CHECK(compare(truth, Json::object()).differences.size() == 17);
    CHECK(compare(Json::object(), exact_report()).differences.size() == 11);
    CHECK(compare(Json(), Json()).differences.size() == 17);
    Json report = exact_report();
    report["sites"] = Json::parse(R"([{"frames":[{}]},{},{"frames":[{"function":7}]}])");
    CHECK(compare(truth, report).differences.size() == 2);
}
