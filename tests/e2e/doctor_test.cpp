// `memtrace doctor` and --dry-run: what they say, when they end with what, and that they set no probe.
#include "catch.hpp"
#include "e2e/kernel_leftovers.hpp"
#include "e2e/memtrace.hpp"

using namespace memtrace::e2e;

namespace {

Finished run_memtrace(const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {memtrace_path()};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run_to_end(command);
}

size_t count_of(const std::string& text, const std::string& part) {
    size_t count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
        ++count;
    return count;
}

}  // namespace

TEST_CASE("the doctor tells what a process is like, and that tracing will work", "[e2e][doctor][kernels]") {
    require_root();
    Workload workload(workload_path("seccomp_cases"));
    const Finished run = run_memtrace({"doctor", "-p", std::to_string(workload.pid())});
    INFO(run.output << run.errors);
    CHECK(run.status == 0);
    CHECK(run.output.ends_with("\ntracing will work\n"));
    for (const char* part :
         {"types of the kernel (BTF)", "session links", "multi links", "cap_sys_ptrace", "the programs load, rung ",
          "a hit costs ", "live_blocks", "\ntarget seccomp_cases[", "  allocators   libc in libc", " probes)",
          "  placement ", "  stacks       ", " files have call-frame information", "  threads      1, ",
          "  danger       it has a seccomp filter"}) {
        INFO(part);
        CHECK_THAT(run.output, ContainsSubstring(part));
    }
    CHECK(changed_code(workload.pid()).empty());
}

TEST_CASE("the doctor ends as tracing would", "[e2e][doctor]") {
    require_root();
    const Finished kernel_thread = run_memtrace({"doctor", "-p", "2"});
    CHECK(kernel_thread.status == 4);
    CHECK_THAT(kernel_thread.output, ContainsSubstring("is a kernel thread"));
    CHECK(kernel_thread.output.ends_with("\ntracing will NOT work\n"));
    const Finished nobody = run_memtrace({"doctor", "-p", "4194305"});
    CHECK(nobody.status == 3);
    CHECK_THAT(nobody.errors, ContainsSubstring("memtrace: process 4194305: no such process"));
    const Finished user =
        run_to_end({"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", memtrace_path(), "doctor"});
    INFO(user.output);
    CHECK(user.status == 77);
    CHECK_THAT(user.output, ContainsSubstring("  no   cap_bpf "));
    CHECK_THAT(user.output, ContainsSubstring("tracing will NOT work"));
    CHECK_THAT(user.errors, ContainsSubstring("cap_bpf and cap_perfmon are missing"));
}

TEST_CASE("a dry run names every probe and sets none", "[e2e][doctor]") {
    require_root();
    Workload workload(workload_path("libc_cases"), {"malloc_lives"});
    const std::set<std::string> before = bpf_objects();
    const std::string pid = std::to_string(workload.pid());
    const Finished dry = run_memtrace({"-p", pid, "--dry-run"});
    INFO(dry.output << dry.errors);
    CHECK(dry.status == 0);
    CHECK(dry.errors.empty());
    for (const char* probe : {"  malloc+0x", "  calloc+0x", "  realloc+0x", "  free+0x", "  munmap+0x", "  mmap+0x"})
        CHECK_THAT(dry.output, ContainsSubstring(probe));
    CHECK_THAT(dry.output, ContainsSubstring(" files, for libc_cases[" + pid + "]; nothing was set\n"));
    CHECK(bpf_objects_left(before).empty());
    CHECK(changed_code(workload.pid()).empty());
    // The same places as the list, whose lines only have prices beside them.
    const Finished list = run_memtrace({"list", "--placement", "-p", pid});
    CHECK(count_of(list.output, "\n") == count_of(dry.output, "\n") - 1);
    CHECK(workload.quit(0) == 0);
}

TEST_CASE("a dry run of a command does not start it, and one of nobody says so", "[e2e][doctor]") {
    require_root();
    const Finished command = run_memtrace({"--dry-run", "--", "/bin/echo", "started"});
    INFO(command.output << command.errors);
    CHECK(command.status == 0);
    CHECK_THAT(command.output, ContainsSubstring("for /bin/echo (to be started); nothing was set"));
    CHECK_THAT(command.output, !ContainsSubstring("\nstarted"));
    CHECK(run_memtrace({"--dry-run", "-p", "4194305"}).status == 3);
    CHECK(run_memtrace({"--dry-run", "-p", "2"}).status == 4);
    CHECK(run_memtrace({"--dry-run", "--", "/no/such/program"}).status == 127);
}
