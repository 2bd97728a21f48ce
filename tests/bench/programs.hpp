// Real programs from their start to their end, without a tracer, with empty probes and under memtrace: the processor
// time that they take. Uses the other files of this folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "kernel/links.hpp"

namespace memtrace {

/// Seconds of processor time, one of each round.
struct ProgramMeasurement {
    std::string program;
    std::vector<double> none_seconds;
    std::vector<double> empty_seconds;
    std::vector<double> memtrace_seconds;
};

/// Programs that are not installed are left out, and so are others than `only`, where it is one. `memtrace_path` is the
/// program as people run it.
Result<std::vector<ProgramMeasurement>> measure_programs(const std::string& memtrace_path, AttachRung rung,
                                                         uint32_t rounds, std::string_view only = {});

/// How long links take with the probes of the C library on one target, in milliseconds, the slowest of `rounds`.
struct LinkTimes {
    double attach_ms = 0;
    double detach_ms = 0;
    size_t probes = 0;
};
Result<LinkTimes> measure_links(AttachRung rung, uint32_t rounds);

}  // namespace memtrace
