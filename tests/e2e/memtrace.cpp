#include "e2e/memtrace.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "catch.hpp"

namespace memtrace::e2e {
namespace {

std::vector<std::string> command_of(const std::vector<std::string>& arguments) {
    // Calls are counted beforehand only in the tests that are about it: it takes a while.
    std::vector<std::string> command = {memtrace_path(), "--format", "json", "--no-forecast"};
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

/// Collects what differs, one line each, so that a failure reads as a list.
class Differences {
  public:
    void expect_equal(const std::string& name, int64_t seen, int64_t expected) {
        add(name, seen, "is not", expected, seen == expected);
    }
    void expect_at_least(const std::string& name, int64_t seen, int64_t expected) {
        add(name, seen, "is below", expected, seen >= expected);
    }
    void expect_at_most(const std::string& name, int64_t seen, int64_t expected) {
        add(name, seen, "is above", expected, seen <= expected);
    }
    const std::string& text() const { return text_; }

  private:
    void add(const std::string& name, int64_t seen, const char* relation, int64_t expected, bool is_fine) {
        if (!is_fine)
            text_ += name + ' ' + std::to_string(seen) + ' ' + relation + ' ' + std::to_string(expected) + '\n';
    }

    std::string text_;
};

void compare_losses(const Json& accuracy, Differences& differences) {
    for (const char* name : {"blocks_not_recorded", "stacks_not_recorded", "events_lost", "returns_missed",
                             "frees_missed", "reallocs_unresolved"})
        differences.expect_equal(name, number(accuracy, name), 0);
    differences.expect_equal("complete", accuracy.at("complete").get<bool>(), true);
}

void compare_sums(const Json& truth, const Json& heap, Differences& differences) {
    for (const char* name : {"allocated_bytes", "allocations", "freed_bytes", "frees", "live_bytes", "live_blocks"}) {
        if (truth.at("sums_are_minimum").get<bool>())
            differences.expect_at_least(name, number(heap, name), number(truth, name));
        else
            differences.expect_equal(name, number(heap, name), number(truth, name));
    }
}

void compare_sites(const Json& truth, const Json& report, Differences& differences) {
    for (const auto& [function, figures] : truth.at("sites").items()) {
        const SiteSum sum = sites_called(report, function);
        differences.expect_equal(function + " live_bytes", sum.live_bytes, number(figures, "live_bytes"));
        differences.expect_equal(function + " live_blocks", sum.live_blocks, number(figures, "live_blocks"));
        if (sum.sites == 0 && sum.live_blocks == 0) continue;  // a report may leave out what holds nothing
        differences.expect_equal(function + " allocated_bytes", sum.allocated_bytes,
                                 number(figures, "allocated_bytes"));
        differences.expect_equal(function + " allocations", sum.allocations, number(figures, "allocations"));
    }
}

void compare_unknown_frees(const Json& truth, const Json& accuracy, Differences& differences) {
    if (accuracy.at("unknown_frees").is_null()) return;  // not knowable
    const int64_t seen = number(accuracy, "unknown_frees");
    const int64_t expected = number(truth, "unknown_frees");
    if (truth.at("unknown_frees_are_minimum").get<bool>())
        differences.expect_at_least("unknown_frees", seen, expected);
    else
        differences.expect_equal("unknown_frees", seen, expected);
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

void on_every_rung(const std::function<void(const std::string& rung)>& check) {
    for (const std::string& rung : rungs()) {
        DYNAMIC_SECTION("rung " << rung) {
            try {
                check(rung);
            } catch (const RungMissing& missing) {
                // Programs that the kernel does not take are no rung that it does not have.
                REQUIRE_THAT(missing.what(), ContainsSubstring("cannot attach by"));
                WARN("skipped, this kernel has no rung " << rung << ": " << missing.what());
            }
        }
    }
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
    const auto is_final = [](const Json& record) {
        return record.at("type") == "report" && record.at("final") == true;
    };
    const auto last = std::find_if(records.rbegin(), records.rend(), is_final);
    if (last == records.rend()) throw std::runtime_error("no final report; stderr: " + errors);
    return *last;
}

Memtrace::Memtrace(const std::vector<std::string>& arguments)
    : child_(command_of(arguments)),
      shows_all_sites_(std::find(arguments.begin(), arguments.end(), "-o") == arguments.end()) {
    require_root();
}

void Memtrace::wait_attached() {
    if (child_.wait_for_error_text("attached to")) return;
    if (child_.wait() == 69) throw RungMissing(child_.errors());
    throw std::runtime_error("memtrace does not attach; stderr: " + child_.errors());
}

Json Memtrace::next(const std::string& type) {
    for (;;) {
        Json record = Json::parse(child_.read_line());
        if (record.at("type") == "report") check_laws(record, shows_all_sites_);
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
        if (end.records.back().at("type") == "report") check_laws(end.records.back(), shows_all_sites_);
    }
    end.status = child_.wait();
    end.errors = child_.errors();
    return end;
}

std::vector<std::string> on_demand(const std::string& rung, pid_t pid) {
    return {"--attach", rung, "-p", std::to_string(pid), "-T", "0", "3600"};
}

void check_laws(const Json& report, bool has_all_sites) {
    const Json& heap = report.at("heap");
    check_identity(heap, "allocated_bytes", "freed_bytes", "ended_bytes", "live_bytes");
    check_identity(heap, "allocations", "frees", "ended_blocks", "live_blocks");
    CHECK(number(heap, "peak_live_bytes") >= number(heap, "live_bytes"));
    if (!has_all_sites || report.at("sites").size() != report.at("sites_total")) return;
    int64_t allocated_bytes = 0;
    int64_t allocations = 0;
    for (const Json& site : report.at("sites")) {
        if (site.at("kind") == "mapping") continue;
        allocated_bytes += number(site, "allocated_bytes");
        allocations += number(site, "allocations");
    }
    CHECK(allocated_bytes == number(heap, "allocated_bytes"));
    CHECK(allocations == number(heap, "allocations"));
}

void check_truth(const Json& truth, const Json& report) {
    Differences differences;
    const Json& accuracy = report.at("accuracy");
    compare_losses(accuracy, differences);
    compare_sums(truth, report.at("heap"), differences);
    compare_sites(truth, report, differences);
    compare_unknown_frees(truth, accuracy, differences);
    differences.expect_at_most("calls_abandoned", number(accuracy, "calls_abandoned"),
                               number(truth, "abandoned_at_most"));
    if (!truth.at("sums_are_minimum").get<bool>())  // dlopen maps as well
        for (const char* name :
             {"mapped_bytes", "unmapped_bytes", "reserved_bytes", "file_bytes", "shared_bytes", "discarded_bytes"})
            if (truth.contains(name))
                differences.expect_equal(name, number(report.at("mappings"), name), number(truth, name));
    INFO("case " << truth.at("case") << ", accuracy " << accuracy.dump());
    // The truth is cumulative: what is wrong now stays wrong in all later cases.
    INFO(differences.text());
    REQUIRE(differences.text().empty());
}

SiteSum sites_called(const Json& report, const std::string& function) {
    SiteSum sum;
    for (const Json& site : report.at("sites")) {
        if (site.at("kind") == "mapping" || site.at("frames").empty()) continue;
        if (site.at("frames").at(0).at("function") != function) continue;
        sum.live_bytes += site.at("live_bytes").get<int64_t>();
        sum.live_blocks += site.at("live_blocks").get<int64_t>();
        sum.allocated_bytes += site.at("allocated_bytes").get<int64_t>();
        sum.allocations += site.at("allocations").get<int64_t>();
        ++sum.sites;
    }
    return sum;
}

}  // namespace memtrace::e2e
