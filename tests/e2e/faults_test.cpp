// What memtrace does when the system fails it: each system call in turn, memory, descriptors, /proc, files, the reader
// of its reports. It says so in a line and ends with its status, or goes on without what it could not have; it never
// hangs, dies of a signal or harms its target.
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "catch.hpp"
#include "e2e/faults.hpp"
#include "e2e/kernel_leftovers.hpp"
#include "e2e/memtrace.hpp"
#include "e2e/temporary_directory.hpp"

using namespace memtrace::e2e;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> one_report(pid_t pid) {
    return {memtrace_path(), "--no-forecast", "-p", std::to_string(pid), "0.1", "1"};
}

/// glibc ends a process whose futex fails otherwise than it can; the exit itself cannot fail.
bool may_fail(long number) {
    return number != SYS_futex && number != SYS_exit_group && number != SYS_exit && number != SYS_rt_sigreturn;
}

int error_of(long number) {
    return number == SYS_mmap || number == SYS_brk || number == SYS_mremap ? ENOMEM : EIO;
}

bool is_known_status(int status) {
    for (const int known : {0, 1, 3, 4, 69, 77})
        if (status == known) return true;
    return false;
}

/// `errors` has a line of ours, and none of anybody who gave up.
void check_says_why(const std::string& errors) {
    CHECK((errors.starts_with("memtrace: ") || errors.find("\nmemtrace: ") != std::string::npos));
    CHECK_THAT(errors, !ContainsSubstring("terminate called"));
    CHECK_THAT(errors, !ContainsSubstring("Assertion"));
}

void check_survives(const FaultyRun& run, pid_t target) {
    REQUIRE(run.fault);
    INFO("call " << run.fault->index << ", number " << run.fault->number << "(" << run.fault->first_argument
                 << "), status " << run.status << "\n"
                 << run.errors);
    REQUIRE_FALSE(run.hangs);
    CHECK(is_known_status(run.status));
    const bool is_mute = run.fault->number == SYS_write && run.fault->first_argument == STDERR_FILENO;
    if (run.status != 0 && !is_mute) check_says_why(run.errors);
    if (run.status == 0) CHECK_THAT(run.output, ContainsSubstring("final report"));
    const std::string state = process_state(target);
    REQUIRE((state == "S" || state == "R"));
}

/// Every `stride`th system call of a session of one report fails once.
void fail_system_calls(uint64_t stride) {
    require_root();
    const std::set<std::string> before = bpf_objects();
    Workload workload(workload_path("libc_cases"), {"malloc_lives"});
    const FaultyRun whole = run_with_fault(one_report(workload.pid()), [](const SystemCall&) { return 0; });
    INFO(whole.errors);
    REQUIRE(whole.status == 0);
    REQUIRE(whole.calls > 200);
    if (stride == 0) stride = whole.calls / 8;
    for (uint64_t index = 1; index < whole.calls; index += stride) {
        bool is_due = false;
        const FaultyRun run = run_with_fault(one_report(workload.pid()), [&](const SystemCall& call) {
            is_due |= call.index == index;
            return is_due && may_fail(call.number) ? error_of(call.number) : 0;
        });
        if (run.fault) check_survives(run, workload.pid());
    }
    CHECK(bpf_objects_left(before).empty());
    CHECK(changed_code(workload.pid()).empty());
    CHECK(workload.quit(0) == 0);
}

/// Of the runs in which each fault comes in turn.
uint64_t chosen_stride() {
    const char* stride = std::getenv("MEMTRACE_TEST_FAULT_STRIDE");
    return stride != nullptr ? std::stoull(stride) : 1;
}

Finished run_without_memory(const std::string& failing, pid_t target, const std::string& calls_path) {
    std::vector<std::string> arguments = one_report(target);
    arguments.front() = MEMTRACE_BUILD_DIR "/tests/memtrace_without_memory";
    arguments.insert(arguments.begin(), {"timeout", "--signal=KILL", "10"});
    return run_to_end(arguments, {"MEMTRACE_TEST_FAILS=" + failing, "MEMTRACE_TEST_CALLS=" + calls_path});
}

/// Every `stride`th allocation of a session of one report fails: alone, or with all that come after it.
void fail_allocations(uint64_t stride) {
    require_root();
    const TemporaryDirectory directory;
    const std::string calls_path = directory.path() / "calls";
    const std::set<std::string> before = bpf_objects();
    Workload workload(workload_path("libc_cases"), {"malloc_lives"});
    const Finished whole = run_without_memory("0", workload.pid(), calls_path);
    INFO(whole.errors);
    REQUIRE(whole.status == 0);
    const uint64_t calls = std::stoull(file_text(calls_path));
    REQUIRE(calls > 10'000);
    if (stride == 0) stride = calls / 2 + 1;
    bool has_failed = false;
    for (uint64_t index = 1; index < calls; index += stride) {
        for (const std::string after : {"", "+"}) {
            const Finished run = run_without_memory(std::to_string(index) + after, workload.pid(), calls_path);
            INFO("allocation " << index << after << " of " << calls << ", status " << run.status << "\n" << run.errors);
            CHECK((run.status == 0 || run.status == 1));
            if (run.status != 0) check_says_why(run.errors);
            if (run.status == 0) CHECK_THAT(run.output, ContainsSubstring("final report"));
            has_failed |= run.status != 0;
            const std::string state = process_state(workload.pid());
            REQUIRE((state == "S" || state == "R"));
        }
    }
    CHECK(has_failed);
    CHECK(bpf_objects_left(before).empty());
    CHECK(changed_code(workload.pid()).empty());
    CHECK(workload.quit(0) == 0);
}

/// Runs `shell`, in which $0 is memtrace and $1 the pid of a target.
Finished run_in_shell(const std::string& shell, pid_t pid) {
    return run_to_end({"sh", "-c", shell, memtrace_path(), std::to_string(pid)});
}

void check_one_line(const Finished& run, int status, const std::string& part) {
    INFO("status " << run.status << "\n" << run.errors);
    CHECK(run.status == status);
    CHECK_THAT(run.errors, ContainsSubstring("memtrace: "));
    CHECK_THAT(run.errors, ContainsSubstring(part));
}

}  // namespace

TEST_CASE("some system calls that fail, each in a session of its own", "[e2e][faults]") {
    fail_system_calls(0);
}

TEST_CASE("every system call that fails, each in a session of its own", "[.slow]") {
    fail_system_calls(chosen_stride());
}

TEST_CASE("some allocations that fail, each in a session of its own", "[e2e][faults]") {
    fail_allocations(0);
}

TEST_CASE("every allocation that fails, each in a session of its own", "[.slow]") {
    fail_allocations(chosen_stride());
}

TEST_CASE("tables that the kernel has no memory for", "[e2e][faults]") {
    require_root();
    constexpr uint64_t map_create = 0;  // enum bpf_cmd
    Child sleeper({"sleep", "100"});
    int created = 0;
    // libbpf tries a map that failed once more in a simpler form.
    const auto choose = [&](const SystemCall& call) {
        const bool is_map = call.number == SYS_bpf && call.first_argument == map_create;
        return is_map && ++created >= 12 ? ENOMEM : 0;
    };
    const FaultyRun run = run_with_fault(one_report(sleeper.pid()), choose, Faults::all);
    INFO(run.errors);
    CHECK(run.status == 1);
    CHECK_THAT(run.errors,
               ContainsSubstring("memtrace: cannot load the BPF programs: not enough memory for the tables"));
}

TEST_CASE("too little memory is said in a line", "[e2e][faults]") {
    require_root();
    Child sleeper({"sleep", "100"});
    bool has_failed = false;
    for (const char* kibibytes : {"30000", "100000"}) {
        const Finished run = run_in_shell(
            "ulimit -v " + std::string(kibibytes) + "; exec \"$0\" --no-forecast -p $1 0.1 1", sleeper.pid());
        // The loader of the program is not ours.
        if (run.status == 127) continue;
        INFO(kibibytes << " KiB, status " << run.status << "\n" << run.errors);
        CHECK((run.status == 0 || run.status == 1));
        if (run.status != 0) check_says_why(run.errors);
        has_failed |= run.status != 0;
    }
    CHECK(has_failed);
}

TEST_CASE("too few descriptors are said in a line", "[e2e][faults]") {
    require_root();
    Child sleeper({"sleep", "100"});
    for (const char* limit : {"5", "20", "30"}) {
        const Finished run =
            run_in_shell("ulimit -n " + std::string(limit) + "; exec \"$0\" --no-forecast -p $1 0.1 1", sleeper.pid());
        INFO(limit << " descriptors, status " << run.status << "\n" << run.errors);
        CHECK((run.status == 0 || run.status == 1));
        if (run.status == 127) continue;
        if (run.status != 0) check_says_why(run.errors);
    }
}

TEST_CASE("no memory that may be locked is no hindrance", "[e2e][faults]") {
    require_root();
    Child sleeper({"sleep", "100"});
    CHECK(run_in_shell("ulimit -l 0; exec \"$0\" --no-forecast -p $1 0.1 1", sleeper.pid()).status == 0);
}

TEST_CASE("without /proc it says so", "[e2e][faults]") {
    require_root();
    Child sleeper({"sleep", "100"});
    check_one_line(run_to_end({"unshare", "--mount", "sh", "-c", "mount -t tmpfs none /proc && exec \"$0\" -p $1 0.1 1",
                               memtrace_path(), std::to_string(sleeper.pid())}),
                   1, "/proc is not mounted here");
}

TEST_CASE("a full disk and a closed output end it with a line", "[e2e][faults]") {
    require_root();
    Child sleeper({"sleep", "100"});
    check_one_line(run_in_shell("exec \"$0\" --no-forecast -p $1 --output /dev/full 0.1 1", sleeper.pid()), 1,
                   "No space left");
    check_one_line(run_in_shell("exec \"$0\" --no-forecast -p $1 0.1 1 >/dev/full", sleeper.pid()), 1, "No space left");
    check_one_line(run_in_shell("exec \"$0\" --no-forecast -p $1 0.1 1 >&-", sleeper.pid()), 1, "Bad file descriptor");
    check_one_line(run_in_shell("exec \"$0\" list >&-", sleeper.pid()), 1, "Bad file descriptor");
    CHECK(run_in_shell("exec \"$0\" --no-forecast -p $1 0.1 1 2>&- <&-", sleeper.pid()).status == 0);
}

TEST_CASE("a library that is cut short while it is mapped", "[e2e][faults]") {
    require_root();
    const TemporaryDirectory directory;
    const std::string library = directory.path() / "library.so";
    fs::copy_file(workload_path("liblate_library.so"), library);
    Workload workload(workload_path("libc_cases"), {"malloc_lives"}, {"LD_PRELOAD=" + library, "LD_BIND_NOW=1"});
    // Its first page stays what it was to who maps it.
    constexpr uintmax_t left_bytes = 100;
    fs::resize_file(library, left_bytes);
    Memtrace memtrace(on_demand("session", workload.pid()));
    memtrace.wait_attached();
    const Json truth = workload.go();
    check_truth(truth, memtrace.report());
    CHECK(memtrace.stop().status == 0);
}
