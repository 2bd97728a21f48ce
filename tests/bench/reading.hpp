// How long memtrace takes to read and report many live blocks. Uses the other files of this folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "bench/target_process.hpp"
#include "kernel/links.hpp"

namespace memtrace {

/// From the signal that asks for a report to its last byte, in milliseconds.
struct ReadingTimes {
    double first_ms = 0;  // names the call sites
    std::vector<double> later_ms;
};

/// Lets `target` allocate `live_blocks` under the program at `memtrace_path`, and asks for reports.
Result<ReadingTimes> measure_reading(TargetProcess& target, const std::string& memtrace_path, AttachRung rung,
                                     uint32_t live_blocks);

}  // namespace memtrace
