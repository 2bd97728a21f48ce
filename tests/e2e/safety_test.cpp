// What becomes of a target and of the kernel when memtrace, or the target, ends as it should not: memtrace is killed at
// any moment; the target is killed for want of memory, is under a debugger or strace, is a set-user-ID program.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "catch.hpp"
#include "e2e/kernel_leftovers.hpp"
#include "e2e/kernel_setting.hpp"
#include "e2e/memtrace.hpp"
#include "e2e/temporary_directory.hpp"

using namespace memtrace::e2e;
namespace fs = std::filesystem;

namespace {

/// Starts memtrace on `pid` and kills it after a while, which it may not reach the end of its start in.
void trace_and_kill(pid_t pid, const std::string& rung, std::chrono::milliseconds after) {
    Child memtrace({memtrace_path(), "--no-forecast", "--attach", rung, "-p", std::to_string(pid), "1"});
    // Nothing says this: what is waited for is the moment.
    CHECK_FALSE(memtrace.wait_for_error_text("\x01", after));
    if (!memtrace.is_running()) {
        CHECK(memtrace.wait() == 69);  // this kernel does not have the rung
        return;
    }
    memtrace.send_signal(SIGKILL);
    CHECK(memtrace.wait() == 128 + SIGKILL);
}

void kill_at_random_moments(int times) {
    require_root();
    const std::set<std::string> before = bpf_objects();
    Workload churner(workload_path("churner"), {"2"});
    std::mt19937 random(20261130);
    std::uniform_int_distribution<int> moment_ms(0, 700);
    for (int i = 0; i < times; ++i) {
        // A perf link takes the kernel a quarter of a second to take away, each.
        const std::string rung = i % 16 == 5 ? "perf" : i % 2 == 0 ? "session" : "multi";
        INFO("kill " << i << ", rung " << rung);
        trace_and_kill(churner.pid(), rung, std::chrono::milliseconds(moment_ms(random)));
        const std::string state = process_state(churner.pid());
        REQUIRE((state == "R" || state == "S"));
    }
    CHECK(bpf_objects_left(before).empty());
    CHECK(changed_code(churner.pid()).empty());
    // It answers, and what it holds is whole.
    churner.child().write_line("pause");
    CHECK(Json::parse(churner.child().read_line()).at("blocks").size() > 100);
    churner.child().write_line("resume");
    CHECK(churner.quit(7) == 7);
}

pid_t pid_of_program(const std::string& name) {
    for (const auto& entry : fs::directory_iterator("/proc")) {
        std::ifstream comm(entry.path() / "comm");
        std::string text;
        if (std::getline(comm, text) && text == name) return std::stoi(entry.path().filename());
    }
    throw std::runtime_error("no process " + name);
}

std::string line_that_starts(Child& child, const std::string& start) {
    for (;;) {
        const std::string line = child.read_line();
        const size_t found = line.find(start);
        if (found != std::string::npos) return line.substr(found);
    }
}

/// `keeper` runs a workload of the name `name` with one case, and stands between it and us.
void check_kept_target(const std::vector<std::string>& keeper, const std::string& name) {
    Child child(keeper);
    line_that_starts(child, "ready ");
    Memtrace memtrace(on_demand("session", pid_of_program(name)));
    memtrace.wait_attached();
    child.write_line("go");
    const Json truth = Json::parse(line_that_starts(child, "{"));
    check_truth(truth, memtrace.report());
    CHECK(memtrace.stop().status == 0);
    child.write_line("quit 0");
    CHECK(child.wait() == 0);
}

/// A memory control group of its own for one process; gone with the object.
class MemoryLimit {
  public:
    MemoryLimit(pid_t pid, const std::string& bytes) {
        const bool is_v2 = fs::exists("/sys/fs/cgroup/cgroup.controllers");
        const fs::path root = is_v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
        if (is_v2) std::ofstream(root / "cgroup.subtree_control") << "+memory" << std::flush;
        path_ = root / ("memtrace-test-" + std::to_string(getpid()));
        fs::create_directory(path_);
        std::ofstream(path_ / (is_v2 ? "memory.max" : "memory.limit_in_bytes")) << bytes << std::flush;
        is_set_ = static_cast<bool>(std::ofstream(path_ / "cgroup.procs") << pid << std::flush);
    }
    MemoryLimit(const MemoryLimit&) = delete;
    MemoryLimit& operator=(const MemoryLimit&) = delete;
    ~MemoryLimit() {
        std::error_code ignored;
        fs::remove(path_, ignored);
    }
    bool is_set() const { return is_set_; }

  private:
    fs::path path_;
    bool is_set_ = false;
};

}  // namespace

TEST_CASE("what memtrace has in the kernel and in its target is seen, and gone when it has ended", "[e2e][safety]") {
    require_root();
    const std::set<std::string> before = bpf_objects();
    Workload workload(workload_path("libc_cases"), {"malloc_lives"});
    CHECK(changed_code(workload.pid()).empty());
    Memtrace memtrace(on_demand(rungs().front(), workload.pid()));
    memtrace.wait_attached();
    size_t programs = 0;
    for (const std::string& object : bpf_objects())
        programs += !before.contains(object) && object.starts_with("prog ") ? 1 : 0;
    CHECK(programs > 3);
    CHECK_THAT(changed_code(workload.pid()), ContainsSubstring("/libc"));
    CHECK(memtrace.stop().status == 0);
    CHECK(bpf_objects_left(before).empty());
    CHECK(changed_code(workload.pid()).empty());
    CHECK(workload.quit(0) == 0);
}

TEST_CASE("killed at any moment memtrace leaves no probe, no map and a target that runs on", "[e2e][safety]") {
    kill_at_random_moments(24);
}

TEST_CASE("killed a thousand times memtrace leaves nothing", "[.slow]") {
    kill_at_random_moments(1000);
}

TEST_CASE("a target that is killed for want of memory has a last report", "[e2e][safety][kernels]") {
    require_root();
    Workload hog(workload_path("hog"));
    const MemoryLimit limit(hog.pid(), "40M");
    if (!limit.is_set()) {
        WARN("skipped, there is no memory control group here");
        return;
    }
    Memtrace memtrace(on_demand(rungs().front(), hog.pid()));
    memtrace.wait_attached();
    hog.child().write_line("go");
    const MemtraceEnd end = memtrace.wait();
    CHECK(hog.child().wait() == 128 + SIGKILL);
    CHECK(end.status == 0);
    CHECK_THAT(end.errors, ContainsSubstring("signal 9"));
    const SiteSum taken = sites_called(end.final_report(), "hog_takes");
    CHECK(taken.live_blocks > 20);
    CHECK(taken.live_blocks < 60);
    CHECK(taken.live_bytes == taken.live_blocks * (1 << 20));
    CHECK(end.final_report().at("accuracy").at("complete") == true);
}

TEST_CASE("a target under strace is traced exactly", "[e2e][safety]") {
    require_root();
    const TemporaryDirectory directory;
    const std::string name = "straced_cases";
    fs::copy(workload_path("libc_cases"), directory.path() / name);
    check_kept_target({"strace", "-f", "-o", directory.path() / "calls", directory.path() / name, "malloc_lives"},
                      name);
    CHECK(fs::file_size(directory.path() / "calls") > 0);
}

TEST_CASE("a target under gdb is traced exactly", "[e2e][safety]") {
    require_root();
    const TemporaryDirectory directory;
    const std::string name = "gdbed_cases";
    fs::copy(workload_path("libc_cases"), directory.path() / name);
    check_kept_target({"gdb", "-q", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-ex", "run", "--args",
                       directory.path() / name, "malloc_lives"},
                      name);
}

TEST_CASE("a set-user-ID program is traced exactly", "[e2e][safety]") {
    require_root();
    const TemporaryDirectory directory;
    fs::permissions(directory.path(), fs::perms::others_exec | fs::perms::others_read, fs::perm_options::add);
    const std::string program = directory.path() / "setuid_cases";
    fs::copy(workload_path("libc_cases"), program);
    REQUIRE(chown(program.c_str(), 65533, 65533) == 0);
    REQUIRE(chmod(program.c_str(), 04755) == 0);
    Workload workload("setpriv", {"--reuid=65534", "--regid=65534", "--clear-groups", program, "malloc_lives"});
    Memtrace memtrace(on_demand("session", workload.pid()));
    memtrace.wait_attached();
    const Json truth = workload.go();
    check_truth(truth, memtrace.report());
    CHECK(memtrace.stop().status == 0);
    CHECK(workload.quit(3) == 3);
}

TEST_CASE("memtrace needs no ptrace: Yama's strictest scopes do not matter", "[e2e][safety][kernels]") {
    require_root();
    const std::string scope = "/proc/sys/kernel/yama/ptrace_scope";
    if (!fs::exists(scope)) {
        WARN("skipped, this kernel has no Yama");
        return;
    }
    const KernelSetting ptrace_scope(scope);
    ptrace_scope.set("2");  // 3 could not be taken back
    Workload workload(workload_path("libc_cases"), {"malloc_lives"});
    Memtrace memtrace(on_demand(rungs().front(), workload.pid()));
    memtrace.wait_attached();
    const Json truth = workload.go();
    check_truth(truth, memtrace.report());
    CHECK(memtrace.stop().status == 0);
    CHECK(workload.quit(0) == 0);
}
