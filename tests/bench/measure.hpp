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

/// What the target does: how deep its stack is, and how many blocks it holds meanwhile.
struct Shape {
    uint32_t frames = 0;
    uint32_t live_blocks = 0;
    friend bool operator==(const Shape&, const Shape&) = default;
};

/// One tracer at one depth of the stack. Times are nanoseconds for one malloc and its free.
struct Measurement {
    std::string tracer;
    Shape shape;
    std::vector<double> round_medians_ns;  // of the rounds that had quiet slices
    uint32_t quiet_slices = 0;
    uint32_t slices = 0;
};

/// Of each tracer for each shape, in the order of the arguments.
Result<std::vector<Measurement>> measure(TargetProcess& target, std::span<const std::unique_ptr<Tracer>> tracers,
                                         std::span<const Shape> shapes, uint32_t rounds);

}  // namespace memtrace
