#include "bench/reading.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <chrono>

#include "bench/child_process.hpp"

namespace memtrace {
namespace {

Result<double> time_report(ChildProcess& process) {
    const auto begin = std::chrono::steady_clock::now();
    kill(process.pid(), SIGUSR1);
    if (!process.read_until("\"type\":\"report\"")) return Error{"memtrace ended", "before it reported"};
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Result<ReadingTimes> measure_reading(TargetProcess& target, const std::string& memtrace_path, AttachRung rung,
                                     uint32_t live_blocks) {
    constexpr int reports = 9;
    auto process = ChildProcess::start(
        {memtrace_path, "-p", fmt::format("{}", target.pid()), "--attach", std::string(rung_name(rung)),
         "--max-live-blocks", fmt::format("{}", live_blocks), "--format", "json", "--quiet", "--no-forecast", "3600"},
        {});
    if (!process) return process.error();
    if (!process->read_until("\"event\":\"attach\"")) return Error{"memtrace ended", "before it attached"};
    if (auto held = target.run({6, 0, 1, live_blocks, 1}); !held) return held.error();
    ReadingTimes times;
    for (int report = 0; report <= reports; ++report) {
        const auto taken_ms = time_report(*process);
        if (!taken_ms) return taken_ms.error();
        if (report == 0)
            times.first_ms = *taken_ms;
        else
            times.later_ms.push_back(*taken_ms);
    }
    kill(process->pid(), SIGINT);
    process->wait();
    return times;
}

}  // namespace memtrace
