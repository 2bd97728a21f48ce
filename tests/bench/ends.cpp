#include "bench/ends.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <sstream>

#include "bench/child_process.hpp"

namespace memtrace {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// User and system time, proc(5).
double processor_seconds(pid_t pid) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    const std::string text(std::istreambuf_iterator<char>(file), {});
    std::istringstream fields(text.substr(text.rfind(')') + 1));
    constexpr int fields_before = 11;
    std::string other;
    for (int field = 0; field < fields_before; ++field)
        fields >> other;
    double user = 0;
    double system = 0;
    fields >> user >> system;
    return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

Result<EndTimes> measure_ends(const std::string& memtrace_path, AttachRung rung, uint32_t children) {
    const std::string script = fmt::format(
        "read go; i=0; while [ $i -lt {} ]; do /bin/true; i=$((i+1)); done; echo done; read stop", children);
    auto shell = ChildProcess::start({"/bin/sh", "-c", script}, {});
    if (!shell) return shell.error();
    auto process =
        ChildProcess::start({memtrace_path, "-f", "-p", fmt::format("{}", shell->pid()), "--by", "tree", "--attach",
                             std::string(rung_name(rung)), "--format", "json", "--quiet", "--no-forecast", "3600"},
                            {});
    if (!process) return process.error();
    const Error ended{"memtrace ended", "before it reported"};
    if (!process->read_until("\"event\":\"attach\"")) return ended;
    EndTimes times;
    const double before = processor_seconds(process->pid());
    const auto begin = Clock::now();
    if (write(shell->input(), "\n", 1) != 1 || !shell->read_until("done")) return Error{"the shell ended", "too early"};
    times.children_seconds = seconds_since(begin);
    const auto all_ended = Clock::now();
    kill(process->pid(), SIGUSR1);
    if (!process->read_until("\"type\":\"report\"")) return ended;
    times.report_ms = seconds_since(all_ended) * 1000;
    times.memtrace_seconds = processor_seconds(process->pid()) - before;
    kill(process->pid(), SIGINT);
    process->wait();
    return times;
}

}  // namespace memtrace
