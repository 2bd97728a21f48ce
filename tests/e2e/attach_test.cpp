// When and to what memtrace attaches: a program at full speed, libraries that come later, files that are gone, several
// processes, names of any bytes.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <thread>

#include "catch.hpp"
#include "e2e/memtrace.hpp"
#include "e2e/temporary_directory.hpp"

using namespace memtrace::e2e;
namespace fs = std::filesystem;

namespace {

using Blocks = std::map<std::string, uint64_t>;

Blocks blocks_held(const std::string& answer) {
    Blocks blocks;
    const Json parsed = Json::parse(answer);
    for (const Json& block : parsed.at("blocks"))
        blocks[block.at(0)] = block.at(1);
    return blocks;
}

Blocks blocks_reported(const Json& report) {
    Blocks blocks;
    for (const Json& site : report.at("sites")) {
        if (site.at("kind") != "heap" || !site.contains("blocks")) continue;
        for (const Json& block : site.at("blocks"))
            blocks[block.at("address")] = block.at("size");
    }
    return blocks;
}

/// Attaches to the churner at full speed, lets it stand still, compares, and detaches at full speed.
void check_one_attach(Workload& churner, const std::string& rung) {
    std::vector<std::string> arguments = on_demand(rung, churner.pid());
    arguments.insert(arguments.begin(), "-a");
    Memtrace memtrace(arguments);
    memtrace.wait_attached();
    churner.child().write_line("pause");
    const Blocks held = blocks_held(churner.child().read_line());
    const Json report = memtrace.report();
    churner.child().write_line("resume");
    const Blocks reported = blocks_reported(report);
    INFO(report.at("accuracy").dump());
    CHECK(report.at("accuracy").at("complete") == true);
    CHECK(reported.size() == report.at("heap").at("live_blocks"));
    std::string not_held;
    for (const auto& [address, size_bytes] : reported) {
        const auto found = held.find(address);
        if (found != held.end() && found->second == size_bytes) continue;
        not_held += address + " of " + std::to_string(size_bytes) + " bytes\n";
    }
    INFO(not_held);
    REQUIRE(not_held.empty());
    CHECK(memtrace.stop().status == 0);
}

void attach_again_and_again(const std::string& rung, int times) {
    Workload churner(workload_path("churner"), {"2"});
    for (int i = 0; i < times; ++i)
        check_one_attach(churner, rung);
    CHECK(churner.quit(5) == 5);
}

void check_pids_are_told_apart(Workload& first, Workload& second) {
    Memtrace memtrace({"-T", "0", "-p", std::to_string(first.pid()) + "," + std::to_string(second.pid()), "3600"});
    memtrace.wait_attached();
    const Json truth = first.go();
    const std::string addresses = first.child().read_line();
    second.go();
    CHECK(second.child().read_line() == addresses);  // the same addresses in both
    second.go();                                     // and more blocks in one
    second.child().read_line();
    for (const Json& report : memtrace.reports(2)) {
        const auto pid = report.at("scope").at("pid").get<pid_t>();
        const auto times = pid == first.pid() ? 1 : 2;
        CHECK(report.at("heap").at("live_bytes") == times * truth.at("live_bytes").get<int64_t>());
        CHECK(sites_called(report, "command_leaks").live_blocks == times * 5);
    }
    CHECK(memtrace.stop().status == 0);
}

}  // namespace

TEST_CASE("attaching again and again to a program at full speed finds no block that it does not hold",
          "[e2e][attach]") {
    // A perf probe takes 100 ms to detach, so that rung has few.
    on_every_rung([](const std::string& rung) { attach_again_and_again(rung, rung == "perf" ? 4 : 20); });
}

TEST_CASE("attaching 200 times on each rung", "[.slow][e2e][attach]") {
    on_every_rung([](const std::string& rung) { attach_again_and_again(rung, 200); });
}

TEST_CASE("libraries that are opened after the attach are traced", "[e2e][attach]") {
    on_every_rung([](const std::string& rung) {
        Workload workload(workload_path("late_cases"));
        Memtrace memtrace(on_demand(rung, workload.pid()));
        memtrace.wait_attached();
        for (int i = 0; i < 3; ++i) {
            const Json truth = workload.go();
            check_truth(truth, memtrace.report());
        }
        // Probes of a library that has just been mapped follow within a moment; its malloc is libc's, and counted.
        std::this_thread::sleep_for(std::chrono::seconds(1));
        const Json truth = workload.go();
        const Json report = memtrace.report();
        check_truth(truth, report);
        bool is_new_named = false;
        for (const Json& site : report.at("sites"))
            if (!site.at("frames").empty() && site.at("frames").at(0).at("function") == "late_new")
                is_new_named = site.at("function") == "operator new";
        CHECK(is_new_named);
        CHECK(memtrace.stop().status == 0);
        CHECK(workload.quit(0) == 0);
    });
}

TEST_CASE("a program and a library whose files are deleted are traced and named", "[e2e][attach]") {
    const TemporaryDirectory directory;
    for (const char* name : {"late_cases", "liblate_library.so", "liblate_library_cxx.so"})
        fs::copy(workload_path(name), directory.path() / name);
    Workload workload(directory.path() / "late_cases");
    workload.go();
    fs::remove_all(directory.path());
    Memtrace memtrace(on_demand("session", workload.pid()));
    memtrace.wait_attached();
    workload.go();
    const Json report = memtrace.report();
    CHECK(report.at("heap").at("live_blocks") == 10);
    CHECK(sites_called(report, "late_malloc").live_blocks == 10);
    CHECK(memtrace.stop().status == 0);
    CHECK(workload.quit(4) == 4);
}

TEST_CASE("two processes with the same addresses are told apart", "[e2e][attach]") {
    const std::string program = workload_path("commands");
    Workload first("setarch", {"-R", program, "addresses"});
    Workload second("setarch", {"-R", program, "addresses"});
    check_pids_are_told_apart(first, second);
    CHECK(first.quit(0) == 0);
    CHECK(second.quit(0) == 0);
}

TEST_CASE("a process whose name is no UTF-8 is reported", "[e2e][attach]") {
    Workload workload(workload_path("commands"), {"odd_name"});
    SECTION("as JSON") {
        Memtrace memtrace(on_demand("session", workload.pid()));
        memtrace.wait_attached();
        const Json truth = workload.go();
        check_truth(truth, memtrace.report());
        CHECK(memtrace.stop().status == 0);
    }
    SECTION("as text") {
        Child memtrace({memtrace_path(), "-p", std::to_string(workload.pid()), "3600"});
        REQUIRE(memtrace.wait_for_error_text("attached to"));
        workload.go();
        memtrace.send_signal(SIGINT);
        CHECK(memtrace.wait() == 0);
        CHECK_THAT(memtrace.output(), ContainsSubstring("\\xff"));
        CHECK_THAT(memtrace.output(), !ContainsSubstring("\x1b"));
    }
    CHECK(workload.quit(0) == 0);
}

TEST_CASE("a program that ends while it is traced is reported with names", "[e2e][attach]") {
    for (const int status : {0, 9}) {
        Workload workload(workload_path("libc_cases"), {"malloc_lives"});
        Memtrace memtrace(on_demand("session", workload.pid()));
        memtrace.wait_attached();
        workload.go();
        CHECK(workload.quit(status) == status);
        const MemtraceEnd end = memtrace.wait();
        CHECK(end.status == 0);
        const SiteSum sum = sites_called(end.final_report(), "calls_malloc");
        CHECK(sum.allocated_bytes == 1000);
        CHECK(sum.allocations == 10);
    }
}
