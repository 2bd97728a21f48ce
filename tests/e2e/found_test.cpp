// Processes that are found by what they run, or because they are there: scripts, a file that was replaced, a build's
// compilers, the whole system; and those that are left out, with the reason.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "catch.hpp"
#include "e2e/records.hpp"
#include "e2e/temporary_directory.hpp"

using namespace memtrace::e2e;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> found_by(const std::string& wanted, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"-x", wanted, "--by", "process", "-T", "0", "3600"};
    arguments.insert(arguments.begin(), more.begin(), more.end());
    return arguments;
}

/// A script that says which process it is and waits for the end of its input.
std::string write_script(const TemporaryDirectory& directory, const std::string& name) {
    const fs::path path = directory.path() / name;
    std::ofstream(path) << "#!/usr/bin/python3\nimport os, sys\nprint('ready', os.getpid(), flush=True)\n"
                           "for line in sys.stdin:\n    kept = [bytearray(5000) for _ in range(100)]\n"
                           "    print('done', flush=True)\n";
    fs::permissions(path, fs::perms(0755));
    return path;
}

/// Eight sources that share nothing, a program of them, and what `make` writes.
void write_project(const fs::path& directory) {
    std::ofstream makefile(directory / "Makefile");
    makefile << "objects = $(patsubst %.c,%.o,$(wildcard *.c))\nprogram: $(objects)\n\tcc -o $@ $^\n"
                "%.o: %.c\n\tcc -O1 -c -o $@ $<\n";
    for (int number = 0; number < 8; ++number) {
        const std::string name = "part" + std::to_string(number);
        std::ofstream source(directory / (name + ".c"));
        source << "int " << name << "(int x) { int sum = 0; for (int i = 0; i < x; ++i) sum += i * " << number
               << "; return sum; }\n";
        if (number == 0) source << "int main(void) { return part0(3); }\n";
    }
}

std::map<std::string, std::string> files_made(const fs::path& directory) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(directory))
        if (entry.path().extension() == ".o" || entry.path().filename() == "program")
            files[entry.path().filename()] = file_text(entry.path());
    return files;
}

std::map<std::string, int> execs_by_name(const std::vector<Json>& records) {
    std::map<std::string, int> count;
    for (const Json& record : records)
        if (record.at("type") == "process" && record.at("event") == "exec") ++count[record.at("comm")];
    return count;
}

/// A process that has ended and that nobody waits for.
class Zombie {
  public:
    Zombie() : pid_(fork()) {
        if (pid_ == 0) _exit(0);
        siginfo_t info{};
        waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
    }
    ~Zombie() { waitpid(pid_, nullptr, 0); }
    Zombie(const Zombie&) = delete;
    Zombie& operator=(const Zombie&) = delete;
    pid_t pid() const { return pid_; }

  private:
    pid_t pid_;
};

}  // namespace

TEST_CASE("a script's name finds the process of its interpreter, running or started later", "[e2e][found]") {
    require_root();
    const TemporaryDirectory directory;
    const std::string script = write_script(directory, "served by me.py");
    const std::string wanted = GENERATE("path", "name") == std::string("path") ? script : "served by me.py";
    Workload running(script);
    Workload other("/usr/bin/python3", {"-c", "import os; print('ready', os.getpid(), flush=True); input()"});
    Memtrace memtrace(found_by(wanted));
    memtrace.wait_attached();
    CHECK(next_of_process(memtrace, running.pid()).at("event") == "attach");
    Workload later(script);
    CHECK(next_of_process(memtrace, later.pid()).at("event") == "exec");
    for (Workload* workload : {&running, &later}) {
        workload->child().write_line("go");
        workload->child().read_line();
    }
    const std::vector<Json> reports = memtrace.reports(2);
    for (const Workload* workload : {&running, &later})
        CHECK(report_of(reports, workload->pid()).at("heap").at("allocated_bytes") >= 100 * 5000);
    const MemtraceEnd end = memtrace.stop();
    CHECK(end.status == 0);
    for (const Json& record : end.records)
        if (record.at("type") == "process") CHECK(record.at("pid") != other.pid());
}

TEST_CASE("a program's file is replaced while its processes run: old ones and new ones are traced", "[e2e][found]") {
    require_root();
    const TemporaryDirectory directory;
    const fs::path program = directory.path() / "service";
    fs::copy(workload_path("libc_cases"), program);
    Workload old(program, {"malloc_lives"});
    fs::copy(workload_path("libc_cases"), directory.path() / "next");
    fs::rename(directory.path() / "next", program);
    Memtrace memtrace(found_by(program, {"--from-birth"}));
    memtrace.wait_attached();
    CHECK(next_of_process(memtrace, old.pid()).at("event") == "attach");
    Workload first(program, {"malloc_lives"});
    CHECK(next_of_process(memtrace, first.pid()).at("event") == "exec");
    // Once more, while it is traced.
    fs::copy(workload_path("libc_cases"), directory.path() / "next");
    fs::rename(directory.path() / "next", program);
    Workload second(program, {"malloc_lives"});
    CHECK(next_of_process(memtrace, second.pid()).at("event") == "exec");
    for (Workload* workload : {&old, &first, &second})
        workload->go();
    const std::vector<Json> reports = memtrace.reports(3);
    for (const Workload* workload : {&old, &first, &second}) {
        const SiteSum sum = sites_called(report_of(reports, workload->pid()), "calls_malloc");
        CHECK(sum.live_bytes == 1000);
        CHECK(sum.allocations == 10);
    }
    CHECK(memtrace.stop().status == 0);
}

TEST_CASE("make -j4: every process of the build is there, complete, and what it builds is the same", "[e2e][found]") {
    require_root();
    const TemporaryDirectory plain;
    const TemporaryDirectory traced;
    write_project(plain.path());
    write_project(traced.path());
    REQUIRE(run_to_end({"make", "-s", "-C", plain.path()}).status == 0);
    const fs::path file = traced.path() / "report";
    const Finished finished = run_to_end({memtrace_path(), "--format", "json", "--no-forecast", "--output", file, "-f",
                                          "-T", "1", "3600", "--", "make", "-s", "-j4", "-C", traced.path()});
    INFO(finished.errors);
    CHECK(finished.status == 0);
    CHECK(files_made(traced.path()) == files_made(plain.path()));
    CHECK(files_made(traced.path()).size() == 9);
    std::vector<Json> records;
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);)
        records.push_back(Json::parse(line));
    std::map<std::string, int> execs = execs_by_name(records);
    CHECK(execs["cc1"] == 8);
    CHECK(execs["as"] == 8);
    CHECK(execs["cc"] == 9);
    CHECK(execs["collect2"] == 1);
    std::map<pid_t, int> unended;
    for (const Json& record : records) {
        if (record.at("type") == "process" && record.at("event") == "fork") ++unended[record.at("pid")];
        if (record.at("type") == "process" && record.at("event") == "exit")
            unended.erase(record.at("pid").get<pid_t>());
        if (record.at("type") != "report") continue;
        INFO(record.at("accuracy").dump());
        CHECK(record.at("accuracy").at("complete") == true);
    }
    CHECK(unended.empty());
}

TEST_CASE("the whole system: a known program's figures are exact in it while others run", "[e2e][found]") {
    require_root();
    const TemporaryDirectory directory;
    const std::string file = directory.path() / "records";
    Workload known(workload_path("libc_cases"), {"malloc_lives"});
    Child busy({"sh", "-c", "while :; do ls -l /usr/bin >/dev/null; done"});
    Child memtrace({memtrace_path(), "-A", "--by", "process", "-T", "100", "--format", "json", "--no-forecast",
                    "--output", file, "3600"});
    REQUIRE(memtrace.wait_for_error_text("attached to"));
    const Json truth = known.go();
    memtrace.send_signal(SIGINT);
    REQUIRE(memtrace.wait() == 0);

    // Only now: this test is traced, too, and reading many reports under the traps takes minutes.
    std::ifstream records(file);
    size_t others = 0;
    bool has_report = false;
    for (std::string line; std::getline(records, line);) {
        const Json record = Json::parse(line);
        if (record.at("type") == "process") {
            others += record.at("comm") == "ls";
            CHECK(record.at("pid") != memtrace.pid());
        }
        if (record.at("type") != "report" || record.at("scope").at("pid") != known.pid()) continue;
        has_report = true;
        const Json& heap = record.at("heap");
        for (const char* name :
             {"allocated_bytes", "allocations", "freed_bytes", "frees", "live_bytes", "live_blocks"}) {
            INFO(name);
            CHECK(heap.at(name) == truth.at(name));
        }
        CHECK(sites_called(record, "calls_malloc").live_bytes == 1000);
    }
    CHECK(has_report);
    CHECK(others > 0);
}

TEST_CASE("who cannot be traced is left out with the reason, and the others are traced", "[e2e][found]") {
    require_root();
    Workload known(workload_path("libc_cases"), {"malloc_lives"});
    const Zombie zombie;
    constexpr auto kernel_thread = "2";
    Memtrace memtrace({"-p", kernel_thread, "-p", std::to_string(zombie.pid()), "-p", "4194305", "-p",
                       std::to_string(known.pid()), "-T", "0", "3600"});
    memtrace.wait_attached();
    const std::map<pid_t, std::string> reasons = {
        {2, "kernel thread"}, {zombie.pid(), "zombie"}, {4194305, "no such process"}};
    for (const auto& [pid, reason] : reasons) {
        const Json record = next_of_process(memtrace, pid);
        CHECK(record.at("event") == "skip");
        CHECK_THAT(record.at("reason").get<std::string>(), ContainsSubstring(reason));
        CHECK_THAT(memtrace.child().errors(), ContainsSubstring(reason));
    }
    const Json truth = known.go();
    check_truth(truth, memtrace.report());
    CHECK(memtrace.stop().status == 0);
}

TEST_CASE("a process whose first thread has ended is traced", "[e2e][found]") {
    require_root();
    Workload workload(workload_path("mainless"));
    Memtrace memtrace(on_demand(rungs().front(), workload.pid()));
    memtrace.wait_attached();
    tell(workload, "go");
    const Json report = memtrace.report();
    CHECK(sites_called(report, "mainless_mallocs").live_bytes == 10 * 100);
    CHECK(report.at("accuracy").at("complete") == true);
    CHECK(report.at("memory").at("rss_bytes") > 0);
    CHECK(memtrace.stop().status == 0);
    CHECK(workload.quit(0) == 0);
}
