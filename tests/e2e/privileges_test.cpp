// memtrace as an unprivileged user whose copy of it has file capabilities: what each of them is needed for, what is
// said when one is missing, and that nothing else is kept.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>

#include "catch.hpp"
#include "e2e/kernel_setting.hpp"
#include "e2e/memtrace.hpp"
#include "e2e/temporary_directory.hpp"

using namespace memtrace::e2e;
namespace fs = std::filesystem;

namespace {

constexpr const char* least = "cap_bpf,cap_perfmon";
constexpr const char* for_others = "cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search,cap_checkpoint_restore";

std::vector<std::string> as_user(int user, const std::vector<std::string>& command) {
    const std::string id = std::to_string(user);
    std::vector<std::string> all = {"setpriv", "--reuid=" + id, "--regid=" + id, "--clear-groups"};
    all.insert(all.end(), command.begin(), command.end());
    return all;
}

/// A copy of memtrace that anybody may run with `capabilities`.
class CapableMemtrace {
  public:
    explicit CapableMemtrace(const std::string& capabilities) {
        fs::permissions(directory_.path(), fs::perms::others_exec | fs::perms::others_read, fs::perm_options::add);
        fs::copy_file(memtrace_path(), path());
        chmod(path().c_str(), 0755);
        if (capabilities.empty()) return;
        const Finished set = run_to_end({"setcap", capabilities + "=ep", path()});
        INFO(set.errors);
        REQUIRE(set.status == 0);
    }
    std::string path() const { return directory_.path() / "memtrace"; }

  private:
    TemporaryDirectory directory_;
};

/// As user 65534, on a target of user `owner`.
Finished trace_once(const CapableMemtrace& memtrace, int owner, const std::vector<std::string>& options = {}) {
    Child sleeper(as_user(owner, {"sleep", "100"}));
    std::vector<std::string> command = {memtrace.path(), "--no-forecast", "-p", std::to_string(sleeper.pid())};
    command.insert(command.end(), options.begin(), options.end());
    command.insert(command.end(), {"0.1", "1"});
    return run_to_end(as_user(65534, command));
}

void check_refused(const Finished& run, const std::string& missing) {
    INFO(run.output << run.errors);
    CHECK(run.status == 77);
    CHECK_THAT(run.errors, ContainsSubstring("not privileged: " + missing + " missing"));
    CHECK_THAT(run.errors, ContainsSubstring("\nhint: run as root (sudo memtrace ...)"));
}

/// The effective set of proc(5), as it is written there.
std::string status_line(pid_t pid, const std::string& name) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with(name + ":\t")) return line.substr(name.size() + 2);
    return "";
}

bool has_multi_links() {
    Child sleeper({"sleep", "100"});
    return run_to_end(
               {memtrace_path(), "--no-forecast", "--attach", "multi", "-p", std::to_string(sleeper.pid()), "0.1", "1"})
               .status == 0;
}

}  // namespace

TEST_CASE("cap_bpf and cap_perfmon are enough for one's own processes", "[e2e][privileges][kernels]") {
    require_root();
    if (!has_multi_links()) {
        WARN("skipped, this kernel has perf events only, which are root's");
        return;
    }
    const CapableMemtrace memtrace(least);
    const KernelSetting paranoid("/proc/sys/kernel/perf_event_paranoid");
    if (std::stoi(paranoid.before()) > 2) {
        const Finished refused = run_to_end(as_user(65534, {memtrace.path(), "selftest"}));
        CHECK_THAT(refused.errors, ContainsSubstring("kernel.perf_event_paranoid"));
        paranoid.set("2");
    }
    const Finished run = run_to_end(as_user(65534, {memtrace.path(), "selftest"}));
    INFO(run.output << run.errors);
    CHECK(run.status == 0);
    CHECK_THAT(run.output, ContainsSubstring("\nexact: "));
    CHECK(run.errors.empty());
}

TEST_CASE("three more capabilities are enough for all processes", "[e2e][privileges]") {
    require_root();
    const CapableMemtrace memtrace(for_others);
    const TemporaryDirectory directory;
    fs::permissions(directory.path(), fs::perms::others_exec | fs::perms::others_read, fs::perm_options::add);
    const std::string program = directory.path() / "libc_cases";
    fs::copy_file(workload_path("libc_cases"), program);
    chmod(program.c_str(), 0500);
    REQUIRE(chown(program.c_str(), 65533, 65533) == 0);
    const std::vector<std::string> command = as_user(65533, {program, "malloc_lives"});
    Workload workload(command.front(), {command.begin() + 1, command.end()});
    fs::remove(program);
    Child tracer(as_user(
        65534, {memtrace.path(), "--no-forecast", "--format", "json", "-p", std::to_string(workload.pid()), "3600"}));
    REQUIRE(tracer.wait_for_error_text("attached to"));
    const Json truth = workload.go();
    tracer.send_signal(SIGINT);
    Json report;
    while (report.is_null() || report.at("type") != "report")
        report = Json::parse(tracer.read_line());
    check_truth(truth, report);
    CHECK(tracer.wait() == 0);
    CHECK(workload.quit(0) == 0);
}

TEST_CASE("the capability that is missing is named", "[e2e][privileges]") {
    require_root();
    check_refused(trace_once(CapableMemtrace(""), 65534), "cap_bpf and cap_perfmon are");
    check_refused(trace_once(CapableMemtrace("cap_bpf"), 65534), "cap_perfmon is");
    check_refused(trace_once(CapableMemtrace("cap_perfmon"), 65534), "cap_bpf is");
    const CapableMemtrace memtrace(least);
    check_refused(trace_once(memtrace, 65533), "cap_sys_ptrace is");
    check_refused(trace_once(memtrace, 65534, {"--attach", "perf"}), "cap_sys_admin is");
}

TEST_CASE("once it records memtrace has given up all privileges but a few", "[e2e][privileges]") {
    require_root();
    Workload workload(workload_path("libc_cases"), {"malloc_lives"});
    Memtrace memtrace(on_demand("session", workload.pid()));
    memtrace.wait_attached();
    const pid_t pid = memtrace.child().pid();
    // dac_read_search, sys_ptrace, sys_admin, perfmon, bpf, checkpoint_restore (linux/capability.h).
    uint64_t kept = 0;
    for (const int number : {2, 19, 21, 38, 39, 40})
        kept |= uint64_t{1} << number;
    const uint64_t effective = std::stoull(status_line(pid, "CapEff"), nullptr, 16);
    CHECK((effective & ~kept) == 0);
    CHECK((effective & uint64_t{1} << 39) != 0);
    CHECK(status_line(pid, "CapPrm") == status_line(pid, "CapEff"));
    CHECK((std::stoull(status_line(pid, "CapBnd"), nullptr, 16) & ~kept) == 0);
    CHECK(status_line(pid, "NoNewPrivs") == "1");
    const Json truth = workload.go();
    check_truth(truth, memtrace.report());
    CHECK(memtrace.stop().status == 0);
    CHECK(workload.quit(0) == 0);
}

TEST_CASE("a command that memtrace starts keeps its privileges", "[e2e][privileges]") {
    require_root();
    const std::string own = status_line(getpid(), "CapEff");
    const Finished run = run_to_end(
        {memtrace_path(), "-q", "--output", "/dev/null", "--", "grep", "CapEff\\|NoNewPrivs", "/proc/self/status"});
    INFO(run.errors);
    CHECK(run.output == "CapEff:\t" + own + "\nNoNewPrivs:\t0\n");
}
