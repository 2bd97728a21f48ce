// Every record against the contract, key by key and in its order.
#include <nlohmann/json.hpp>
#include <sstream>

#include "catch.hpp"
#include "formats/list.hpp"
#include "sample_report.hpp"

using namespace memtrace;
using Json = nlohmann::ordered_json;

namespace {

std::string lines_of(const Record& record) {
    std::ostringstream stream;
    find_format("json")->make({})->write(record, stream);
    return stream.str();
}

Json parsed(const Record& record) {
    const std::string text = lines_of(record);
    REQUIRE(text.find('\n') == text.size() - 1);
    return Json::parse(text);
}

std::string keys_of(const Json& object) {
    std::string keys;
    for (const auto& [key, value] : object.items())
        keys += (keys.empty() ? "" : " ") + key;
    return keys;
}

}  // namespace

TEST_CASE("a start record has the contract's keys", "[formats]") {
    const StartRecord start{1'795'975'205'123'456'789, "0.1.0",   "6.1.0-26-amd64",
                            {"memtrace", "-p", "1"},   "session", "fp"};
    CHECK(lines_of(start) ==
          "{\"type\":\"start\",\"schema\":1,\"time\":\"2026-11-29T18:00:05.123Z\",\"version\":\"0.1.0\","
          "\"kernel\":\"6.1.0-26-amd64\",\"args\":[\"memtrace\",\"-p\",\"1\"],\"attach\":\"session\","
          "\"unwinder\":\"fp\"}\n");
}

TEST_CASE("a process record has the contract's keys, and null for what is not known", "[formats]") {
    ProcessRecord process{"exit", 7, 1,          "victim", "/usr/bin/victim",     {"libc"},
                          true,   0, "/a.slice", "0a1b",   "exited with status 3"};
    CHECK(lines_of(process) ==
          "{\"type\":\"process\",\"event\":\"exit\",\"pid\":7,\"ppid\":1,\"comm\":\"victim\","
          "\"exe\":\"/usr/bin/victim\",\"runtimes\":[\"libc\"],\"since_birth\":true,\"window_ns\":0,"
          "\"cgroup\":\"/a.slice\",\"container\":\"0a1b\",\"reason\":\"exited with status 3\"}\n");
    process.since_birth.reset();
    process.window_ns.reset();
    process.cgroup.reset();
    process.container.reset();
    process.ppid.reset();
    process.exe.reset();
    process.reason.reset();
    const Json object = parsed(process);
    for (const char* key : {"since_birth", "window_ns", "cgroup", "container"})
        CHECK(object[key].is_null());
    CHECK(object["ppid"].is_null());
    CHECK(object["exe"].is_null());
    CHECK(object["reason"].is_null());
}

TEST_CASE("a report has the contract's keys in the contract's order", "[formats]") {
    const Json report = parsed(test::sample_report());
    CHECK(keys_of(report) ==
          "type seq final time elapsed_ns scope heap mappings memory accuracy overhead stopped allocators sites_total "
          "sites");
    CHECK(keys_of(report["allocators"][0]) == "name allocations allocated_bytes");
    CHECK(keys_of(report["scope"]) == "by name pid pids");
    CHECK(keys_of(report["heap"]) ==
          "live_bytes live_blocks allocated_bytes allocations freed_bytes frees ended_bytes ended_blocks "
          "inherited_bytes inherited_blocks peak_live_bytes");
    CHECK(keys_of(report["mappings"]) ==
          "live_bytes live_count mapped_bytes unmapped_bytes inherited_bytes reserved_bytes file_bytes shared_bytes "
          "stack_bytes discarded_bytes");
    CHECK(keys_of(report["memory"]) == "rss_bytes pss_bytes rss_growth_bytes mapped_bytes growth");
    CHECK(keys_of(report["accuracy"]) ==
          "complete blocks_not_recorded stacks_not_recorded events_lost returns_missed frees_missed "
          "reallocs_unresolved inherited_lost unknown_frees calls_abandoned calls_suppressed stacks_truncated "
          "sampling_mean_bytes "
          "children_not_seen types_not_recorded");
    const Json& site = report["sites"][0];
    CHECK(keys_of(site) ==
          "id kind allocator function type live_bytes live_blocks allocated_bytes allocations growth_bytes "
          "growth_since_baseline_bytes age_ns stack_error frames");
    CHECK(keys_of(site["age_ns"]) == "min p50 max");
    CHECK(keys_of(site["frames"][0]) == "function file line module offset inlined kind");
}

TEST_CASE("a report of several processes has each of them, and those that hold a call site", "[formats]") {
    const Json report = parsed(test::tree_report());
    CHECK(keys_of(report) ==
          "type seq final time elapsed_ns scope heap mappings memory accuracy overhead stopped allocators sites_total "
          "sites processes ended_processes");
    CHECK(report["scope"].dump() == R"({"by":"tree","name":"shop-server","pid":100,"pids":[100,101,102,104,105]})");
    REQUIRE(report["processes"].size() == 6);
    CHECK(report["processes"][3].dump() ==
          R"({"pid":103,"ppid":100,"comm":"sh","exe":"/usr/sbin/sh","since_birth":null,"window_ns":450000,)"
          R"("started_ns":60000000000,"ended_ns":183000000000,"rss_bytes":null,"live_bytes":0,"live_blocks":38,)"
          R"("allocated_bytes":1024,"allocations":40,"freed_bytes":1024,"frees":2,"ended_bytes":12288,)"
          R"("ended_blocks":3,"growth_bytes":-12288,"growth_since_baseline_bytes":0,"mappings_live_bytes":0})");
    CHECK(report["ended_processes"].dump() ==
          R"({"count":2041,"allocated_bytes":90000000,"allocations":81640,"ended_bytes":500000,"ended_blocks":640})");
    const Json& site = report["sites"][1];
    CHECK(site["processes"].dump() == R"([{"pid":100,"live_bytes":1048576,"live_blocks":4},)"
                                      R"({"pid":101,"live_bytes":1048576,"live_blocks":4}])");
    CHECK(site["processes_total"] == 7);
    CHECK(lines_of(RestRecord{}).empty());
}

TEST_CASE("growth is told part by part, and what is not known is null", "[formats]") {
    ReportRecord record = test::sample_report();
    record.memory.growth = GrowthFigures{.total_bytes = 100,
                                         .heap_live_bytes = 40,
                                         .allocator_retained_bytes = -5,
                                         .mappings_bytes = 30,
                                         .stacks_bytes = 1,
                                         .files_bytes = 20,
                                         .shared_bytes = 2,
                                         .gc_heap_bytes = std::nullopt,
                                         .unexplained_bytes = 12};
    record.sites[0].resident_bytes = 4096;
    const Json report = parsed(record);
    CHECK(
        report["memory"]["growth"].dump() ==
        R"({"of":"rss","total_bytes":100,"heap_live_bytes":40,"allocator_retained_bytes":-5,"mappings_bytes":30,)"
        R"("stacks_bytes":1,"files_bytes":20,"shared_bytes":2,"earlier_bytes":0,"gc_heap_bytes":null,"unexplained_bytes":12})");
    CHECK(report["sites"][0]["resident_bytes"] == 4096);
    record.memory.growth->is_shared_out = true;
    record.memory.growth->allocator_retained_bytes.reset();
    const Json other = parsed(record);
    CHECK(other["memory"]["growth"]["of"] == "pss");
    CHECK(other["memory"]["growth"]["allocator_retained_bytes"].is_null());
}

TEST_CASE("a report's values are those of the record", "[formats]") {
    const Json report = parsed(test::sample_report());
    CHECK(report["type"] == "report");
    CHECK(report["seq"] == 3);
    CHECK(report["final"] == false);
    CHECK(report["time"] == "2026-11-29T18:00:05.123Z");
    CHECK(report["elapsed_ns"] == 185'000'000'000);
    CHECK(report["scope"].dump() == R"({"by":"process","name":"shop-server","pid":48213,"pids":[48213]})");
    CHECK(report["heap"].dump() ==
          R"({"live_bytes":11800576,"live_blocks":4237,"allocated_bytes":15728640,"allocations":61000,)"
          R"("freed_bytes":3403776,"frees":56713,"ended_bytes":524288,"ended_blocks":50,"inherited_bytes":0,)"
          R"("inherited_blocks":0,"peak_live_bytes":12058624})");
    CHECK(report["mappings"].dump() ==
          R"({"live_bytes":67108864,"live_count":2,"mapped_bytes":83886080,"unmapped_bytes":16777216,)"
          R"("inherited_bytes":0,"reserved_bytes":0,"file_bytes":0,"shared_bytes":0,"stack_bytes":0,)"
          R"("discarded_bytes":0})");
    CHECK(report["memory"].dump() ==
          R"({"rss_bytes":50528256,"pss_bytes":null,"rss_growth_bytes":1048576,"mapped_bytes":null,"growth":null})");
    CHECK(report["sites_total"] == 18);
    const Json& site = report["sites"][0];
    CHECK(site["id"] == "9f2c51d07ab3e846");
    CHECK(site["kind"] == "heap");
    CHECK(site["type"].is_null());
    CHECK(site["growth_bytes"] == 2'097'152);
    CHECK(site["age_ns"].dump() == R"({"min":12000000,"p50":6100000000,"max":183000000000})");
    CHECK(site["stack_error"].is_null());
    CHECK(site["frames"][0]["inlined"] == true);
    CHECK(site["frames"][1].dump() ==
          R"-({"function":"shop::SessionCache::remember(shop::Session const&)",)-"
          R"-("file":"/home/build/shop/src/session/session_cache.cpp","line":142,"module":"shop-server",)-"
          R"-("offset":"0x9a41","inlined":false,"kind":"native"})-");
}

TEST_CASE("what is not knowable is null", "[formats]") {
    ReportRecord record = test::sample_report();
    record.memory = {};
    record.accuracy.is_size_filtered = true;
    const Json report = parsed(record);
    CHECK(report["memory"].dump() ==
          R"({"rss_bytes":null,"pss_bytes":null,"rss_growth_bytes":null,"mapped_bytes":null,"growth":null})");
    CHECK(report["accuracy"]["unknown_frees"].is_null());
    const Json& stackless = report["sites"][2];
    CHECK(stackless["id"].is_null());
    CHECK(stackless["age_ns"].is_null());
    CHECK(stackless["stack_error"] == "stack not recorded");
    CHECK(stackless["frames"].dump() == "[]");
    const Json& unnamed = report["sites"][1]["frames"][0];
    CHECK(unnamed["function"].is_null());
    CHECK(unnamed["file"].is_null());
    CHECK(unnamed["line"].is_null());
    CHECK(unnamed["offset"] == "0x2b158");
}

TEST_CASE("estimates say so and how far they may be off", "[formats]") {
    ReportRecord record = test::sample_report();
    record.accuracy.is_sampled = true;
    record.accuracy.sampling_mean_bytes = 524288;
    record.heap.error_bytes = 1000;
    record.sites[0].error_bytes = 700;
    const Json report = parsed(record);
    CHECK(report["heap"]["estimate"] == true);
    CHECK(report["heap"]["error_bytes"] == 1000);
    CHECK(report["sites"][0]["estimate"] == true);
    CHECK(report["sites"][0]["error_bytes"] == 700);
    CHECK_FALSE(report["sites"][1].contains("estimate"));
    CHECK(report["accuracy"]["sampling_mean_bytes"] == 524288);
    CHECK(report["accuracy"]["unknown_frees"].is_null());
}

TEST_CASE("a report tells what tracing costs, and what stopped when", "[formats]") {
    ReportRecord record = test::sample_report();
    CHECK(parsed(record)["overhead"].is_null());
    CHECK(parsed(record)["stopped"].is_null());
    record.overhead = OverheadFigures{.hits_per_second = 41'000, .core_share = 0.0625, .max_core_share = std::nullopt};
    record.stop = StopFigures{.elapsed_ns = 7, .reason = "too dear"};
    CHECK(parsed(record)["overhead"].dump() ==
          R"({"hits_per_second":41000,"core_share":0.0625,"max_core_share":null})");
    CHECK(parsed(record)["stopped"].dump() ==
          R"({"elapsed_ns":7,"reason":"too dear","figures":["heap","mappings","accuracy","allocators","sites"]})");
}

TEST_CASE("accuracy sums reasons under the contract's names, and a loss ends completeness", "[formats]") {
    ReportRecord record = test::sample_report();
    CHECK(parsed(record)["accuracy"]["complete"] == true);
    record.accuracy.blocks_live_table_full = 1;
    record.accuracy.blocks_calls_full = 2;
    record.accuracy.stacks_sites_full = 4;
    record.accuracy.events_side_band_lost = 8;
    record.accuracy.reallocs_unresolved = 16;
    CHECK(
        parsed(record)["accuracy"].dump() ==
        R"({"complete":false,"blocks_not_recorded":3,"stacks_not_recorded":4,"events_lost":8,"returns_missed":0,)"
        R"("frees_missed":0,"reallocs_unresolved":16,"inherited_lost":0,"unknown_frees":3,"calls_abandoned":1,"calls_suppressed":4395,)"
        R"("stacks_truncated":0,"sampling_mean_bytes":0,"children_not_seen":0,"types_not_recorded":0})");
}

TEST_CASE("blocks are there exactly when they were asked for", "[formats]") {
    ReportRecord record = test::sample_report();
    record.sites[0].blocks = {{{0x55d0c0a0, 64, 12}}};
    record.sites[1].blocks.emplace();
    const Json report = parsed(record);
    CHECK(report["sites"][0]["blocks"].dump() == R"([{"address":"0x55d0c0a0","size":64,"age_ns":12}])");
    CHECK(report["sites"][1]["blocks"].dump() == "[]");
    CHECK_FALSE(report["sites"][2].contains("blocks"));
}

TEST_CASE("traced events, warnings and the end have the contract's keys", "[formats]") {
    BlockEventRecord event{false, 5, 1, 2, "malloc", 0x7f10, 64, "9f2c51d07ab3e846"};
    CHECK(lines_of(event) ==
          "{\"type\":\"alloc\",\"time_ns\":5,\"pid\":1,\"tid\":2,\"function\":\"malloc\",\"address\":\"0x7f10\","
          "\"size\":64,\"site\":\"9f2c51d07ab3e846\"}\n");
    event.is_free = true;
    event.site.reset();
    CHECK(parsed(event)["type"] == "free");
    CHECK(parsed(event)["site"].is_null());
    CHECK(lines_of(WarningRecord{"late", "attached late"}) ==
          "{\"type\":\"warning\",\"code\":\"late\",\"message\":\"attached late\"}\n");
    CHECK(lines_of(EndRecord{"signal", 0}) == "{\"type\":\"end\",\"reason\":\"signal\",\"status\":0}\n");
}

TEST_CASE("names of any bytes make one valid line of JSON", "[formats]") {
    const std::string hostile = std::string("a\n\x1b[31m\xff\"\\") + '\0' + "ö";
    ReportRecord record = test::sample_report();
    record.scope.name = hostile;
    record.sites[0].function = hostile;
    record.sites[0].stack_error = hostile;
    record.sites[0].frames[0].function = hostile;
    record.sites[0].frames[0].file = hostile;
    record.sites[0].frames[0].module = hostile;
    const Json report = parsed(record);
    const std::string shown = "a\\x0a\\x1b[31m\\xff\"\\\\x00ö";
    CHECK(report["scope"]["name"] == shown);
    CHECK(report["sites"][0]["function"] == shown);
    CHECK(report["sites"][0]["stack_error"] == shown);
    CHECK(report["sites"][0]["frames"][0]["function"] == shown);
    CHECK(report["sites"][0]["frames"][0]["file"] == shown);
    CHECK(report["sites"][0]["frames"][0]["module"] == shown);
    CHECK(parsed(ProcessRecord{
              "attach", 1, 1, hostile, hostile, {hostile}, {}, {}, hostile, hostile, hostile})["comm"] == shown);
    CHECK(parsed(StartRecord{0, hostile, hostile, {hostile}, "perf", "fp"})["args"][0] == shown);
    CHECK(parsed(WarningRecord{"c", hostile})["message"] == shown);
}
