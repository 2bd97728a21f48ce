// Control groups and containers as targets: who comes in, is born in them, those that are not there yet, and those that
// go and come again.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "catch.hpp"
#include "e2e/records.hpp"

using namespace memtrace::e2e;
namespace fs = std::filesystem;

namespace {

/// Where version 2 is mounted; empty: nowhere.
std::string cgroup_mount() {
    std::ifstream mounts("/proc/self/mounts");
    for (std::string line; std::getline(mounts, line);) {
        std::istringstream words(line);
        std::string source, directory, type;
        words >> source >> directory >> type;
        if (type == "cgroup2") return directory;
    }
    return {};
}

/// A control group below the mount, which goes with the object.
class TestCgroup {
  public:
    explicit TestCgroup(std::string path, bool is_made = true) : path_(std::move(path)) {
        require_root();
        if (is_made) make();
    }
    TestCgroup(const TestCgroup&) = delete;
    TestCgroup& operator=(const TestCgroup&) = delete;
    ~TestCgroup() { remove(); }

    const std::string& path() const { return path_; }
    fs::path directory() const { return cgroup_mount() + path_; }
    void make() const { fs::create_directories(directory()); }
    void take_in(pid_t pid) const { std::ofstream(directory() / "cgroup.procs") << pid << std::flush; }
    void remove() const {
        // A process that has ended leaves it a moment later.
        for (int tries = 0; rmdir(directory().c_str()) != 0 && errno == EBUSY && tries < 500; ++tries)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }

  private:
    std::string path_;
};

void leave_cgroup(pid_t pid) {
    std::ofstream(cgroup_mount() + "/cgroup.procs") << pid << std::flush;
}

std::string unique(const std::string& name) {
    return "/memtrace-test-" + name + "-" + std::to_string(getpid());
}

std::vector<std::string> in_group(const std::string& option, const std::string& value,
                                  const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {option, value, "--by", "process", "-T", "0", "3600"};
    arguments.insert(arguments.begin(), more.begin(), more.end());
    return arguments;
}

void check_malloc_lives(Memtrace& memtrace, Workload& workload, size_t processes) {
    const Json truth = workload.go();
    const Json report = report_of(memtrace.reports(processes), workload.pid());
    check_truth(truth, report);
    CHECK(sites_called(report, "calls_malloc").live_bytes == 1000);
}

bool has_cgroups() {
    if (!cgroup_mount().empty()) return true;
    WARN("skipped: cgroup2 is not mounted");
    return false;
}

/// As container engines name them.
std::string container_id() {
    std::string id = std::to_string(getpid());
    id.insert(0, 64 - id.size(), 'c');
    return id;
}

}  // namespace

TEST_CASE("a process that comes into a control group is traced from then on, also when it leaves", "[e2e][cgroups]") {
    if (!has_cgroups()) return;
    const TestCgroup cgroup(unique("moved"));
    Workload first(workload_path("libc_cases"), {"malloc_lives"});
    Workload second(workload_path("libc_cases"), {"malloc_lives"});
    Workload outside(workload_path("libc_cases"), {"malloc_lives"});
    cgroup.take_in(first.pid());
    Memtrace memtrace(in_group("--cgroup", cgroup.path()));
    memtrace.wait_attached();
    CHECK(next_of_process(memtrace, first.pid()).at("event") == "attach");
    cgroup.take_in(second.pid());
    const Json record = next_of_process(memtrace, second.pid());
    CHECK(record.at("event") == "attach");
    CHECK(record.at("cgroup") == cgroup.path());
    outside.go();
    leave_cgroup(first.pid());
    check_malloc_lives(memtrace, first, 2);
    check_malloc_lives(memtrace, second, 2);
    CHECK(memtrace.stop().status == 0);
    for (Workload* workload : {&first, &second})
        CHECK(workload->quit(0) == 0);
}

TEST_CASE("children that are born in a control group are traced from birth", "[e2e][cgroups]") {
    if (!has_cgroups()) return;
    const TestCgroup cgroup(unique("born"));
    Workload outside(workload_path("children"), {"20"});
    Memtrace memtrace({"--cgroup", cgroup.path(), "--by", "process", "--from-birth", "-T", "0", "3600"});
    REQUIRE(memtrace.child().wait_for_error_text("waiting"));
    tell(outside, "born " + cgroup.directory().string());
    int reports = 0;
    for (const Json& record : memtrace.stop().records) {
        if (record.at("type") != "report") continue;
        ++reports;
        CHECK(record.at("accuracy").at("complete") == true);
        CHECK(record.at("heap").at("allocations") == 10);
        CHECK(record.at("heap").at("frees") == 3);
    }
    CHECK(reports == 20);
    CHECK(outside.quit(0) == 0);
}

TEST_CASE("a control group that is not there yet is waited for; it goes and comes again", "[e2e][cgroups]") {
    if (!has_cgroups()) return;
    const TestCgroup cgroup(unique("later"), false);
    Memtrace memtrace(in_group("--cgroup", cgroup.path()));
    REQUIRE(memtrace.child().wait_for_error_text("does not exist yet: waiting for it"));
    for (int round = 0; round < 2; ++round) {
        cgroup.make();
        Workload workload(workload_path("libc_cases"), {"malloc_lives"});
        cgroup.take_in(workload.pid());
        CHECK(next_of_process(memtrace, workload.pid()).at("event") == "attach");
        check_malloc_lives(memtrace, workload, 1);
        CHECK(workload.quit(0) == 0);
        cgroup.remove();
        REQUIRE(memtrace.child().wait_for_error_text("is gone"));
    }
    CHECK(memtrace.stop().status == 0);
}

TEST_CASE("a container is found by its control group's name, running or started later", "[e2e][cgroups]") {
    if (!has_cgroups()) return;
    const std::string id = container_id();
    const bool is_later = GENERATE(false, true);
    const TestCgroup cgroup("/docker-" + id + ".scope", !is_later);
    Workload workload(workload_path("libc_cases"), {"malloc_lives"});
    if (!is_later) cgroup.take_in(workload.pid());
    Memtrace memtrace(in_group("--container", is_later ? id : id.substr(0, 60)));
    if (is_later) {
        REQUIRE(memtrace.child().wait_for_error_text("does not exist yet: waiting for it"));
        cgroup.make();
        cgroup.take_in(workload.pid());
    }
    const Json record = next_of_process(memtrace, workload.pid());
    CHECK(record.at("event") == "attach");
    CHECK(record.at("container") == id);
    check_malloc_lives(memtrace, workload, 1);
    CHECK(memtrace.stop().status == 0);
    CHECK(workload.quit(0) == 0);
}

TEST_CASE("what does not exist ends with 3 when it is not to be waited for", "[e2e][cgroups]") {
    if (!has_cgroups()) return;
    require_root();
    for (const char* option : {"--cgroup", "--container"}) {
        const Finished run = run_to_end({memtrace_path(), option, "memtrace-nowhere", "--no-wait"});
        INFO(run.errors);
        CHECK(run.status == 3);
        CHECK_THAT(run.errors, ContainsSubstring("memtrace-nowhere"));
    }
}
