#include "bench/programs.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>

#include "bench/child_process.hpp"
#include "bench/empty_probes.hpp"
#include "processes/loaded_files.hpp"

namespace memtrace {
namespace {

struct Program {
    std::string name;
    std::vector<std::string> command;
    std::string driver;  // a shell command that makes a server work; then it is told to end
};

const std::string python_script = R"(
import json
for size in range(240):
    kept = [bytearray(n * 7) for n in range(400)]
    text = json.dumps([{'name': str(n) * 5, 'values': list(range(n % 20))} for n in range(60)])
    back = json.loads(text)
)";
const std::string perl_script =
    "for my $r (1..4) { my %h; $h{\"key$_\"} = [$_, \"value$_\"] for 1..4000; delete $h{\"key$_\"} for 1..4000 }";

std::string output_of(const std::string& command) {
    std::string text;
    std::array<char, 4096> bytes{};
    FILE* pipe = popen(command.c_str(), "r");
    while (pipe != nullptr && fgets(bytes.data(), static_cast<int>(bytes.size()), pipe) != nullptr)
        text += bytes.data();
    if (pipe != nullptr) pclose(pipe);
    if (text.ends_with('\n')) text.pop_back();
    return text;
}

std::vector<Program> programs() {
    const std::string socket = fmt::format("/tmp/memtrace-bench-{}.socket", getpid());
    const std::string load = fmt::format(
        "until redis-cli -s {0} ping >/dev/null 2>&1; do sleep 0.05; done; redis-benchmark -s {0} -n 1000 -r 500 -c 4 "
        "-q "
        "-t set,lpush,lpop,sadd,hset >/dev/null",
        socket);
    return {
        {"python3", {"/usr/bin/python3", "-c", python_script}, ""},
        {"g++",
         {output_of("g++ -print-prog-name=cc1plus"), "-quiet", "-imultiarch", "x86_64-linux-gnu", "-D_GNU_SOURCE",
          "-O1", MEMTRACE_SOURCE_DIR "/tests/bench/unwind/compiled.cpp", "-o", "/dev/null"},
         ""},
        {"perl", {"/usr/bin/perl", "-e", perl_script}, ""},
        {"redis", {"redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", "/tmp"}, load},
    };
}

/// A program that is stopped before its first instruction until it is told to go.
class HeldProgram {
  public:
    static Result<HeldProgram> start(const std::string& path, const std::vector<std::string>& command) {
        std::array<int, 2> fds{};
        if (pipe2(fds.data(), O_CLOEXEC) != 0) return Error{"cannot make a pipe", errno_text(errno)};
        std::vector<char*> arguments;
        for (const std::string& argument : command)
            arguments.push_back(const_cast<char*>(argument.c_str()));
        arguments.push_back(nullptr);
        const pid_t pid = fork();
        if (pid == 0) {
            char byte = 0;
            close(fds[1]);
            const int nowhere = open("/dev/null", O_RDWR);
            dup2(nowhere, STDOUT_FILENO);
            dup2(nowhere, STDIN_FILENO);
            if (read(fds[0], &byte, 1) == 1) execv(path.c_str(), arguments.data());
            _exit(127);
        }
        close(fds[0]);
        return HeldProgram(pid, Fd(fds[1]));
    }

    pid_t pid() const { return pid_; }
    void go() { (void)!write(start_.get(), "", 1); }
    /// Waits for its end; seconds of processor time.
    Result<double> wait() {
        rusage usage{};
        int status = 0;
        while (wait4(pid_, &status, 0, &usage) < 0 && errno == EINTR) {
        }
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return Error{"a program of the bench failed", "see above"};
        const auto seconds = [](const timeval& time) {
            return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
        };
        return seconds(usage.ru_utime) + seconds(usage.ru_stime);
    }

  private:
    HeldProgram(pid_t pid, Fd start) : pid_(pid), start_(std::move(start)) {}
    pid_t pid_;
    Fd start_;
};

/// Runs it once; `attach` is called while it is held, and what it returns lives until the end.
Result<double> run_once(const Program& program, const std::string& path,
                        const std::function<Result<std::shared_ptr<void>>(pid_t)>& attach) {
    auto held = HeldProgram::start(path, program.command);
    if (!held) return held.error();
    const auto attached = attach(held->pid());
    if (!attached) return attached.error();
    held->go();
    if (!program.driver.empty()) {
        if (std::system(program.driver.c_str()) != 0) return Error{program.name, "its load failed"};
        kill(held->pid(), SIGTERM);
    }
    return held->wait();
}

/// memtrace as people run it, attached; it ends with the object.
Result<std::shared_ptr<void>> attach_memtrace(const std::string& memtrace_path, AttachRung rung, pid_t pid) {
    auto process =
        ChildProcess::start({memtrace_path, "-p", fmt::format("{}", pid), "--attach", std::string(rung_name(rung)),
                             "--format", "json", "--quiet", "--no-forecast", "3600"},
                            {});
    if (!process) return process.error();
    std::string text;
    std::array<char, 4096> bytes{};
    while (text.find("\"attach\",\"pid\"") == std::string::npos) {
        const ssize_t count = read(process->output(), bytes.data(), bytes.size());
        if (count <= 0) return Error{"memtrace ended before it attached", fmt::format("status {}", process->wait())};
        text.append(bytes.data(), static_cast<size_t>(count));
    }
    return std::shared_ptr<void>(std::make_shared<ChildProcess>(std::move(*process)));
}

Result<void> measure_round(const Program& program, const std::string& memtrace_path, AttachRung rung,
                           ProgramMeasurement& measurement) {
    const CommandPath found = find_command(program.command.front(), environ);
    const auto files = files_loaded_by(found.path, environ);
    if (!files) return files.error();
    const auto none = [](pid_t) -> Result<std::shared_ptr<void>> { return std::shared_ptr<void>(); };
    const auto empty = [&](pid_t pid) -> Result<std::shared_ptr<void>> {
        auto probes = EmptyProbes::attach(rung, *files, pid);
        if (!probes) return probes.error();
        return std::shared_ptr<void>(std::move(*probes));
    };
    const auto memtrace = [&](pid_t pid) { return attach_memtrace(memtrace_path, rung, pid); };
    auto add = [&](std::vector<double>& seconds, const auto& attach) -> Result<void> {
        const auto taken = run_once(program, found.path, attach);
        if (!taken) return taken.error();
        seconds.push_back(*taken);
        return {};
    };
    if (auto done = add(measurement.none_seconds, none); !done) return done;
    if (auto done = add(measurement.empty_seconds, empty); !done) return done;
    return add(measurement.memtrace_seconds, memtrace);
}

double elapsed_ms(std::chrono::steady_clock::time_point since) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - since).count();
}

}  // namespace

Result<std::vector<ProgramMeasurement>> measure_programs(const std::string& memtrace_path, AttachRung rung,
                                                         uint32_t rounds, std::string_view only) {
    std::vector<ProgramMeasurement> measurements;
    std::vector<Program> all = programs();
    if (!only.empty()) std::erase_if(all, [&](const Program& program) { return program.name != only; });
    for (const Program& program : all)
        measurements.push_back({program.name, {}, {}, {}});
    for (uint32_t round = 0; round < rounds; ++round)
        for (size_t index = 0; index < all.size(); ++index) {
            if (find_command(all[index].command.front(), environ).status != CommandStatus::found) continue;
            if (auto done = measure_round(all[index], memtrace_path, rung, measurements[index]); !done)
                return done.error();
        }
    std::erase_if(measurements, [](const ProgramMeasurement& measurement) { return measurement.none_seconds.empty(); });
    return measurements;
}

Result<LinkTimes> measure_links(AttachRung rung, uint32_t rounds) {
    LinkTimes times;
    // By its path: whoever is asked what it loads would take /proc/self for its own.
    const auto files = files_loaded_by(std::filesystem::canonical("/proc/self/exe").string(), environ);
    if (!files) return files.error();
    for (uint32_t round = 0; round < rounds; ++round) {
        auto probes = EmptyProbes::attach(rung, *files, getpid());
        if (!probes) return probes.error();
        times.attach_ms = std::max(times.attach_ms, (*probes)->attach_ms());
        times.probes = (*probes)->probe_count();
        const auto middle = std::chrono::steady_clock::now();
        (*probes)->detach();
        times.detach_ms = std::max(times.detach_ms, elapsed_ms(middle));
    }
    return times;
}

}  // namespace memtrace
