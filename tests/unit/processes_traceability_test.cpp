// Reasons not to trace: each from made-up facts, and the facts from made-up and real processes.
#include "processes/traceability.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "catch.hpp"
#include "processes_test_programs.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

TraceFacts facts_of(const std::string& status) {
    const TemporaryFolder proc;
    std::filesystem::create_directory(proc / "5");
    proc.write("5/status", "Name:\tx\n" + status);
    proc.write("5/maps", "");
    const auto facts = read_trace_facts(5, proc / ".");
    REQUIRE(facts);
    return *facts;
}

}  // namespace

TEST_CASE("what is like other processes may be traced", "[processes][traceability]") {
    CHECK_FALSE(reason_not_to_trace(TraceFacts{}, true));
    CHECK_FALSE(reason_not_to_trace(TraceFacts{.is_seccomp_filtered = true}, false));
}

TEST_CASE("each reason has a clause of its own", "[processes][traceability]") {
    CHECK_THAT(*reason_not_to_trace(TraceFacts{.is_memtrace = true}, false), ContainsSubstring("memtrace itself"));
    CHECK_THAT(*reason_not_to_trace(TraceFacts{.is_kernel_thread = true}, false), ContainsSubstring("kernel thread"));
    CHECK_THAT(*reason_not_to_trace(TraceFacts{.has_ended = true}, false), ContainsSubstring("zombie"));
    CHECK_THAT(*reason_not_to_trace(TraceFacts{.is_seccomp_filtered = true}, true), ContainsSubstring("seccomp"));
    CHECK(*reason_not_to_trace(TraceFacts{.denied_by = 33}, false) ==
          "belongs to user 33; memtrace needs cap_sys_ptrace for it, or root (sudo)");
}

TEST_CASE("facts are read from the status of a process", "[processes][traceability]") {
    const TraceFacts plain = facts_of("State:\tS (sleeping)\nVmSize:\t 10 kB\nThreads:\t1\nSeccomp:\t0\n");
    CHECK_FALSE(plain.is_kernel_thread);
    CHECK_FALSE(plain.has_ended);
    CHECK_FALSE(plain.is_seccomp_filtered);
    CHECK_FALSE(plain.denied_by);
    CHECK(facts_of("State:\tI (idle)\nPPid:\t2\nThreads:\t1\n").is_kernel_thread);
    const TraceFacts on_its_way_out = facts_of("State:\tR (running)\nPPid:\t20\nThreads:\t1\n");
    CHECK_FALSE(on_its_way_out.is_kernel_thread);
    CHECK(on_its_way_out.has_ended);
    CHECK(facts_of("State:\tZ (zombie)\nThreads:\t1\n").has_ended);
    CHECK_FALSE(facts_of("State:\tZ (zombie)\nThreads:\t1\n").is_kernel_thread);
    CHECK_FALSE(facts_of("State:\tZ (zombie)\nThreads:\t2\n").has_ended);
    CHECK(facts_of("VmSize:\t1 kB\nSeccomp:\t2\nSeccomp_filters:\t1\n").is_seccomp_filtered);
    CHECK(facts_of("VmSize:\t1 kB\nSeccomp:\t1\n").is_seccomp_filtered);
    const TraceFacts debugged = facts_of("TracerPid:\t77\nUid:\t1000\t0\t0\t0\nVmSize:\t1 kB\nThreads:\t12\n");
    CHECK(debugged.tracer == 77);
    CHECK(debugged.threads == 12);
    CHECK(debugged.has_changed_user);
    CHECK(plain.tracer == 0);
    CHECK_FALSE(facts_of("Uid:\t1000\t1000\t1000\t1000\nVmSize:\t1 kB\n").has_changed_user);
}

TEST_CASE("real processes tell the same", "[processes][traceability]") {
    CHECK(read_trace_facts(::getpid())->is_memtrace);
    CHECK_FALSE(read_trace_facts(::getppid())->is_memtrace);
    CHECK_FALSE(read_trace_facts(0x7fffffff));
    CHECK_FALSE(reason_not_to_trace(0x7fffffff));

    const pid_t zombie = ::fork();
    if (zombie == 0) ::_exit(0);
    siginfo_t info{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(zombie), &info, WEXITED | WNOWAIT) == 0);
    CHECK_THAT(reason_not_to_trace(zombie).value_or(""), ContainsSubstring("zombie"));
    ::waitpid(zombie, nullptr, 0);
}

TEST_CASE("the kernel's own answer about filtered processes is the same each time", "[processes][traceability]") {
    const bool kills = uretprobes_kill_filtered();
    CHECK(uretprobes_kill_filtered() == kills);
    std::string release;
    std::ifstream("/proc/sys/kernel/osrelease") >> release;
    const int major = std::stoi(release);
    const int minor = std::stoi(release.substr(release.find('.') + 1));
    CAPTURE(release);
    // Outside these it is known; inside it depends on what a distribution took over.
    if (major != 6 || minor < 11 || minor > 13) CHECK_FALSE(kills);
}
