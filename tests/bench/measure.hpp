// The measurement: rounds in which every tracer watches the target once, in shuffled order, so that slow changes of the
// machine meet all of them alike. Uses the other files of this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "bench/target_process.hpp"
#include "bench/tracers.hpp"

namespace memtrace {

/// One tracer at one depth of the stack. Times are nanoseconds for one malloc and its free.
struct Measurement {
    std::string tracer;
    uint32_t frames = 0;
    std::vector<double> round_medians_ns;  // of the rounds that had quiet slices
    uint32_t quiet_slices = 0;
    uint32_t slices = 0;
};

/// Of each tracer at each depth, in the order of the arguments.
Result<std::vector<Measurement>> measure(TargetProcess& target, std::span<const std::unique_ptr<Tracer>> tracers,
                                         std::span<const uint32_t> depths, uint32_t rounds);

}  // namespace memtrace
