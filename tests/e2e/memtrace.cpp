#include "e2e/memtrace.hpp"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "catch.hpp"

namespace memtrace::e2e {
namespace {

std::vector<std::string> command_of(std::vector<std::string> arguments) {
    std::vector<std::string> command = {memtrace_path(), "--format", "json"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
}

int64_t number(const Json& object, const char* name) {
    return object.at(name).get<int64_t>();
}

void check_identity(const Json& heap, const char* added, const char* taken, const char* ended, const char* live) {
    INFO(heap.dump());
    CHECK(number(heap, added) - number(heap, taken) - number(heap, ended) == number(heap, live));
    CHECK(number(heap, live) >= 0);
}

void check_no_loss(const Json& accuracy) {
    INFO(accuracy.dump());
    CHECK(accuracy.at("complete") == true);
    for (const char* name : {"blocks_not_recorded", "stacks_not_recorded", "events_lost", "returns_missed",
                             "frees_missed", "reallocs_unresolved"})
        CHECK(number(accuracy, name) == 0);
}

void check_sums(const Json& truth, const Json& heap) {
    INFO(heap.dump());
    for (const char* name : {"allocated_bytes", "allocations", "freed_bytes", "frees", "live_bytes", "live_blocks"}) {
        INFO(name);
        if (truth.at("sums_are_minimum").get<bool>())
            CHECK(number(heap, name) >= number(truth, name));
        else
            CHECK(number(heap, name) == number(truth, name));
    }
}

void check_sites(const Json& truth, const Json& report) {
    for (const auto& [function, figures] : truth.at("sites").items()) {
        INFO("site " << function << ": " << figures.dump());
        const SiteSum sum = sites_called(report, function);
        CHECK(sum.live_bytes == figures.at("live_bytes"));
        CHECK(sum.live_blocks == figures.at("live_blocks"));
        if (sum.sites == 0 && figures.at("live_blocks") == 0) continue;  // a report may leave out what holds nothing
        CHECK(sum.allocated_bytes == figures.at("allocated_bytes"));
        CHECK(sum.allocations == figures.at("allocations"));
    }
}

}  // namespace

std::vector<std::string> rungs() {
    const char* chosen = std::getenv("MEMTRACE_TEST_RUNGS");
    std::istringstream words(chosen != nullptr ? chosen : "session multi perf");
    std::vector<std::string> names;
    for (std::string name; words >> name;)
        names.push_back(name);
    return names;
}

std::string memtrace_path() {
    return MEMTRACE_BUILD_DIR "/memtrace";
}

void require_root() {
    if (geteuid() == 0) return;
    std::fputs("skipped: these tests need root\n", stderr);
    std::exit(77);
}

const Json& MemtraceEnd::final_report() const {
    for (auto record = records.rbegin(); record != records.rend(); ++record)
        if (record->at("type") == "report" && record->at("final") == true) return *record;
    throw std::runtime_error("no final report; stderr: " + errors);
}

Memtrace::Memtrace(std::vector<std::string> arguments, std::vector<std::string> environment)
    : child_(command_of(std::move(arguments)), std::move(environment)) {
    require_root();
}

void Memtrace::wait_attached() {
    if (child_.wait_for_error_text("attached to")) return;
    if (!child_.is_running() && child_.wait() == 69) throw RungMissing(child_.errors());
    throw std::runtime_error("memtrace does not attach; stderr: " + child_.errors());
}

Json Memtrace::next(const std::string& type) {
    for (;;) {
        Json record = Json::parse(child_.read_line());
        if (record.at("type") == "report") check_laws(record);
        if (record.at("type") == type) return record;
    }
}

Json Memtrace::report() {
    child_.send_signal(SIGUSR1);
    return next("report");
}

std::vector<Json> Memtrace::reports(size_t count) {
    child_.send_signal(SIGUSR1);
    std::vector<Json> reports;
    while (reports.size() < count)
        reports.push_back(next("report"));
    return reports;
}

MemtraceEnd Memtrace::stop() {
    child_.send_signal(SIGINT);
    return wait();
}

MemtraceEnd Memtrace::wait() {
    MemtraceEnd end;
    while (const std::optional<std::string> line = child_.read_line_or_end()) {
        end.records.push_back(Json::parse(*line));
        if (end.records.back().at("type") == "report") check_laws(end.records.back());
    }
    end.status = child_.wait();
    end.errors = child_.errors();
    return end;
}

std::vector<std::string> on_demand(const std::string& rung, pid_t pid) {
    return {"--attach", rung, "-p", std::to_string(pid), "-T", "0", "3600"};
}

void check_laws(const Json& report) {
    const Json& heap = report.at("heap");
    check_identity(heap, "allocated_bytes", "freed_bytes", "ended_bytes", "live_bytes");
    check_identity(heap, "allocations", "frees", "ended_blocks", "live_blocks");
    CHECK(number(heap, "peak_live_bytes") >= number(heap, "live_bytes"));
    if (report.at("sites").size() != report.at("sites_total")) return;
    int64_t allocated_bytes = 0;
    int64_t allocations = 0;
    for (const Json& site : report.at("sites")) {
        if (site.at("kind") != "heap") continue;
        allocated_bytes += number(site, "allocated_bytes");
        allocations += number(site, "allocations");
    }
    CHECK(allocated_bytes == number(heap, "allocated_bytes"));
    CHECK(allocations == number(heap, "allocations"));
}

void check_truth(const Json& truth, const Json& report) {
    INFO("case " << truth.at("case") << ", truth " << truth.dump());
    check_no_loss(report.at("accuracy"));
    check_sums(truth, report.at("heap"));
    check_sites(truth, report);
    const Json& accuracy = report.at("accuracy");
    INFO(accuracy.dump());
    if (truth.at("unknown_frees_are_minimum").get<bool>())
        CHECK(number(accuracy, "unknown_frees") >= number(truth, "unknown_frees"));
    else
        CHECK(number(accuracy, "unknown_frees") == number(truth, "unknown_frees"));
    CHECK(number(accuracy, "calls_abandoned") <= number(truth, "abandoned_at_most"));
    if (truth.at("sums_are_minimum").get<bool>()) return;  // dlopen maps as well
    INFO(report.at("mappings").dump());
    CHECK(number(report.at("mappings"), "mapped_bytes") == number(truth, "mapped_bytes"));
    CHECK(number(report.at("mappings"), "unmapped_bytes") == number(truth, "unmapped_bytes"));
}

SiteSum sites_called(const Json& report, const std::string& function) {
    SiteSum sum;
    for (const Json& site : report.at("sites")) {
        if (site.at("kind") != "heap" || site.at("frames").empty()) continue;
        if (site.at("frames").at(0).at("function") != function) continue;
        sum.live_bytes += site.at("live_bytes").get<uint64_t>();
        sum.live_blocks += site.at("live_blocks").get<uint64_t>();
        sum.allocated_bytes += site.at("allocated_bytes").get<uint64_t>();
        sum.allocations += site.at("allocations").get<uint64_t>();
        ++sum.sites;
    }
    return sum;
}

}  // namespace memtrace::e2e
