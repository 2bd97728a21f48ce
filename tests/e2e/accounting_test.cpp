// Exactly-once accounting on every rung of attaching: each workload runs case by case, and after each the report must
// equal the truth that the program prints about itself.
#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "e2e/check_cases.hpp"

using namespace memtrace::e2e;

namespace {

struct Program {
    std::string name;
    std::vector<std::string> arguments = {};
    std::vector<std::string> environment = {};
};

void check_on_rung(const Program& program, const std::string& rung) {
    check_cases({workload_path(program.name), program.arguments, program.environment}, rung);
}

void check_on_every_rung(const Program& program) {
    on_every_rung([&](const std::string& rung) { check_on_rung(program, rung); });
}

}  // namespace

TEST_CASE("every function of libc is counted once, however it ends", "[e2e][accounting][kernels]") {
    check_on_every_rung({"libc_cases"});
}

TEST_CASE("every form of operator new is counted once, and exceptions pass unharmed", "[e2e][accounting][kernels]") {
    check_on_every_rung({"cxx_cases"});
}

TEST_CASE("racing threads leave an exact balance", "[e2e][accounting][kernels]") {
    check_on_every_rung({"thread_cases"});
}

TEST_CASE("realloc that moves blocks never frees another thread's block", "[e2e][accounting]") {
    check_on_every_rung({"realloc_race", {}, {"GLIBC_TUNABLES=glibc.malloc.tcache_count=0"}});
}

TEST_CASE("one call site holds more than 4 GiB", "[e2e][accounting]") {
    check_on_every_rung({"big_cases", {"one_site_holds_more_than_4_gib"}});
}

TEST_CASE("signal handlers that interrupt malloc are counted, and calls that are left are not",
          "[e2e][accounting][kernels]") {
    check_on_every_rung({"inside_cases"});
}

TEST_CASE("a handler on an alternate stack below the thread's stack allocates inside malloc", "[e2e][accounting]") {
    check_on_every_rung({"inside_threads", {"alternate_stack_below"}});
}

// The kernel takes a call on a higher stack for the end of those on lower ones, and kills the thread when one of these
// returns after all (kernel/events/uprobes.c, handle_trampoline: "sending SIGILL"). memtrace must not wait for the
// return of such a call; what it then cannot record must be counted. Only a session can refuse a single return: on the
// other rungs any return probe on malloc, also one without memtrace, ends the program, as the README says.
TEST_CASE("a handler on an alternate stack above the thread's stack does not end the program", "[e2e][accounting]") {
    on_every_rung([](const std::string& rung) {
        if (rung != "session") return;
        Workload workload(workload_path("inside_threads"), {"alternate_stack_above"});
        Memtrace memtrace(on_demand(rung, workload.pid()));
        memtrace.wait_attached();
        const Json truth = workload.go();
        const Json report = memtrace.report();
        const Json& accuracy = report.at("accuracy");
        INFO(accuracy.dump());
        const int64_t missed = accuracy.at("returns_missed");
        CHECK(report.at("heap").at("allocations").get<int64_t>() + missed == truth.at("allocations"));
        CHECK(accuracy.at("complete") == (missed == 0));
        CHECK(sites_called(report, "inside_malloc").live_blocks ==
              truth.at("sites").at("inside_malloc").at("live_blocks"));
        CHECK(memtrace.stop().status == 0);
        CHECK(workload.quit(7) == 7);
    });
}

TEST_CASE("threads that end inside malloc leave no block", "[e2e][accounting]") {
    check_on_every_rung(
        {"inside_threads",
         {"thread_ends_inside_malloc", "thread_ends_inside_malloc_on_an_alternate_stack", "others_go_on"}});
}

TEST_CASE("coroutines take turns between and inside allocator calls", "[e2e][accounting]") {
    check_on_every_rung({"fiber_cases"});
}

TEST_CASE("a thousand stacks and a deep one are counted", "[e2e][accounting]") {
    on_every_rung([](const std::string& rung) {
        // memtrace's own allocations meet the probes of the perf rung: a report of a thousand stacks takes a minute
        // there.
        if (rung == "perf") return check_on_rung({"stack_cases", {"recursion_of_1000_frames"}}, rung);
        check_on_rung({"stack_cases"}, rung);
    });
}

TEST_CASE("a fork child has its own blocks", "[e2e][accounting][kernels]") {
    check_on_every_rung({"process_cases", {"fork_child_allocates_and_frees"}});
}

// Links of the other rungs are filtered by thread group, to which a vfork child does not belong: the kernel runs no
// program for it, and a report says so.
TEST_CASE("a vfork child shares the parent's blocks where it is seen, and is told where it is not",
          "[e2e][accounting]") {
    on_every_rung([](const std::string& rung) {
        if (rung == "perf") return check_on_rung({"process_cases", {"vfork_child_allocates"}}, rung);
        Workload workload(workload_path("process_cases"), {"fork_child_allocates_and_frees", "vfork_child_allocates"});
        Memtrace memtrace(on_demand(rung, workload.pid()));
        memtrace.wait_attached();
        workload.go();
        workload.go();
        CHECK(memtrace.report().at("accuracy").at("children_not_seen") == 1);
        CHECK(memtrace.stop().status == 0);
    });
}

TEST_CASE("the program's own mappings are counted to the byte", "[e2e][accounting][kernels]") {
    check_on_every_rung({"mapping_cases"});
}

TEST_CASE("a stack that differs only far up is another call site, whatever was there before", "[e2e][kernels]") {
    on_every_rung([](const std::string& rung) {
        INFO(rung);
        Workload workload(workload_path("stack_cases"), {"the_same_place_from_other_callers"});
        Memtrace memtrace(on_demand(rung, workload.pid()));
        memtrace.wait_attached();
        const Json truth = workload.go();
        const Json report = memtrace.report();
        check_truth(truth, report);
        int64_t allocations = 0;
        for (const auto& [caller, size_bytes] :
             {std::pair("first_caller", 101), {"second_caller", 102}, {"third_caller", 103}, {"fourth_caller", 104}})
            for (const Json& site : report.at("sites")) {
                const Json& frames = site.at("frames");
                const auto is_caller = [name = Json(caller)](const Json& frame) {
                    return frame.at("function") == name;
                };
                if (std::none_of(frames.begin(), frames.end(), is_caller)) continue;
                INFO(caller);
                CHECK(site.at("allocated_bytes") == site.at("allocations").get<int64_t>() * size_bytes);
                allocations += site.at("allocations").get<int64_t>();
            }
        CHECK(allocations == truth.at("allocations"));
        CHECK(memtrace.stop().status == 0);
    });
}

TEST_CASE("one call site allocates more than 2^24 times", "[.][slow][e2e]") {
    check_on_every_rung({"big_cases", std::vector<std::string>(17, "one_site_allocates_a_million_times")});
}

TEST_CASE("ten million live blocks are counted to the byte, and reported within a second", "[.][slow][e2e]") {
    Workload workload(workload_path("big_cases"), {"ten_million_blocks_live"});
    std::vector<std::string> arguments = {"--max-live-blocks", "10000000"};
    for (const std::string& argument : on_demand("session", workload.pid()))
        arguments.push_back(argument);
    Memtrace memtrace(arguments);
    memtrace.wait_attached();
    const Json truth = workload.go();
    check_truth(truth, memtrace.report());
    const auto begin = std::chrono::steady_clock::now();
    const Json report = memtrace.report();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    WARN("a report of ten million live blocks takes " << taken.count() << " s");
    CHECK(taken.count() < 1);
    CHECK(report.at("heap").at("live_blocks") == 10'000'000);
    CHECK(memtrace.stop().status == 0);
    CHECK(workload.quit(0) == 0);
}
