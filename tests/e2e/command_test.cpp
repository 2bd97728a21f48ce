// Commands that memtrace starts (`--` and -c): nothing of them is missed, their streams and their status are theirs.
#include <signal.h>

#include <chrono>
#include <thread>

#include <sstream>

#include "catch.hpp"
#include "e2e/memtrace.hpp"
#include "e2e/temporary_directory.hpp"

using namespace memtrace::e2e;

namespace {

struct CommandRun : MemtraceEnd {
    std::string output;  // the command's own
};

std::vector<Json> parse_lines(const std::string& text) {
    std::vector<Json> records;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        records.push_back(Json::parse(line));
    return records;
}

CommandRun run_command(std::vector<std::string> options) {
    require_root();
    const TemporaryDirectory directory;
    const std::string file = directory.path() / "report";
    std::vector<std::string> arguments = {memtrace_path(), "--format", "json", "--output", file, "-T", "0"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    Finished finished = run_to_end(arguments);
    CommandRun run{{finished.status, parse_lines(file_text(file)), finished.errors}, finished.output};
    for (const Json& record : run.records)
        if (record.at("type") == "report") check_laws(record, true);
    return run;
}

/// A program's start-up allocates too (the loader, libc), so the sums are a lower bound and the named site is exact.
void check_leak(const CommandRun& run) {
    INFO(run.errors);
    const Json truth = Json::parse(run.output);
    const Json& report = run.final_report();
    CHECK(report.at("accuracy").at("complete") == true);
    const SiteSum sum = sites_called(report, "command_leaks");
    CHECK(sum.allocated_bytes == truth.at("allocated_bytes"));
    CHECK(sum.allocations == truth.at("allocations"));
    CHECK(report.at("accuracy").at("unknown_frees") == 0);
}

}  // namespace

TEST_CASE("a command is traced from its first allocation and its status is ours", "[e2e][command]") {
    for (const char* status : {"0", "3", "255"}) {
        INFO("status " << status);
        const CommandRun run = run_command({"--", workload_path("commands"), "leak", status});
        CHECK(run.status == std::atoi(status));
        check_leak(run);
    }
}

TEST_CASE("a command line given with -c is traced", "[e2e][command]") {
    const CommandRun run = run_command({"-c", workload_path("commands") + " leak 6"});
    CHECK(run.status == 6);
    check_leak(run);
}

TEST_CASE("-c keeps quoted words together", "[e2e][command]") {
    const CommandRun run = run_command({"-c", "printf '%s|' 'a b' c\\ d"});
    CHECK(run.status == 0);
    CHECK(run.output == "a b|c d|");
}

TEST_CASE("a command that a signal ends gives 128 and its number", "[e2e][command]") {
    for (const int number : {SIGKILL, SIGSEGV, SIGABRT}) {
        const CommandRun run = run_command({"--", workload_path("commands"), "die", std::to_string(number)});
        CHECK(run.status == 128 + number);
        check_leak(run);
    }
}

TEST_CASE("a command that runs itself anew is traced in every image", "[e2e][command]") {
    const CommandRun run = run_command({"--", workload_path("commands"), "chain", "3"});
    CHECK(run.status == 0);
    const Json& heap = run.final_report().at("heap");
    INFO(heap.dump());
    INFO(run.final_report().at("sites").dump());
    CHECK(heap.at("ended_bytes").get<int64_t>() >= 3 * 5000);
    CHECK(sites_called(run.final_report(), "command_leaks").allocations == 4 * 5);
}

TEST_CASE("SIGINT and SIGTERM are passed on, and the last report follows the command's end", "[e2e][command]") {
    for (const int number : {SIGINT, SIGTERM}) {
        Memtrace memtrace({"-T", "0", "--", workload_path("commands"), "wait", "11"});
        memtrace.wait_attached();
        // The command's own line comes between memtrace's.
        Json truth;
        for (;;) {
            truth = Json::parse(memtrace.child().read_line());
            if (truth.contains("case")) break;
        }
        memtrace.child().send_signal(number);
        const MemtraceEnd end = memtrace.wait();
        CHECK(end.status == 11);
        CHECK(sites_called(end.final_report(), "command_leaks").allocated_bytes == truth.at("allocated_bytes"));
    }
}

TEST_CASE("--strict leaves the status of a complete run alone", "[e2e][command]") {
    CHECK(run_command({"--strict", "--", workload_path("commands"), "leak", "5"}).status == 5);
}

TEST_CASE("a command that is not found gives 127 and says so", "[e2e][command]") {
    const CommandRun run = run_command({"--", "memtrace-no-such-command"});
    CHECK(run.status == 127);
    CHECK_THAT(run.errors, ContainsSubstring("memtrace-no-such-command"));
    CHECK_THAT(run.errors, ContainsSubstring("not found"));
}

TEST_CASE("a text file as a command is refused with its name", "[e2e][command]") {
    const CommandRun run = run_command({"-c", MEMTRACE_SOURCE_DIR "/CMakeLists.txt"});
    CHECK(run.status == 126);
    CHECK_THAT(run.errors, ContainsSubstring("CMakeLists.txt"));
    CHECK_THAT(run.errors, ContainsSubstring("permission denied"));
}
