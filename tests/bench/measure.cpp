#include "bench/measure.hpp"

#include <algorithm>
#include <numeric>
#include <random>

#include "bench/statistics.hpp"

namespace memtrace {
namespace {

constexpr double slice_ns = 2'000'000;
constexpr uint32_t slices_a_round = 12;

/// As many pairs as fill a slice under the tracer that is attached.
Result<uint64_t> pairs_a_slice(TargetProcess& target, uint32_t frames) {
    const bench_request request = {frames, 1, 200, 0, 0};
    for (int attempt = 0; attempt < 100; ++attempt) {
        const Result<bench_result> result = target.run(request);
        if (!result) return result.error();
        if (result->quiet_slices == 1) return static_cast<uint64_t>(slice_ns / result->pair_ns[0]) + 1;
    }
    return Error{"the machine is too busy to measure anything", "no slice of 100 was quiet", "stop what else runs"};
}

Result<void> measure_shape(TargetProcess& target, Measurement& measurement) {
    const Result<uint64_t> pairs = pairs_a_slice(target, measurement.shape.frames);
    if (!pairs) return pairs.error();
    const Result<bench_result> result =
        target.run({measurement.shape.frames, slices_a_round, *pairs, measurement.shape.live_blocks, 0});
    if (!result) return result.error();
    measurement.slices += slices_a_round;
    measurement.quiet_slices += result->quiet_slices;
    if (result->quiet_slices > 0)
        measurement.round_medians_ns.push_back(
            median(std::vector<double>(result->pair_ns, result->pair_ns + result->quiet_slices)));
    return {};
}

/// 0 to count - 1 in the order of this round.
std::vector<size_t> shuffled(size_t count, std::mt19937& random) {
    std::vector<size_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    return order;
}

}  // namespace

Result<std::vector<Measurement>> measure(TargetProcess& target, std::span<const std::unique_ptr<Tracer>> tracers,
                                         std::span<const Shape> shapes, uint32_t rounds) {
    std::vector<Measurement> measurements;
    for (const auto& tracer : tracers)
        for (const Shape& shape : shapes)
            measurements.push_back({std::string(tracer->name()), shape, {}, 0, 0});

    std::mt19937 random(1);
    for (uint32_t round = 0; round < rounds; ++round) {
        for (const size_t index : shuffled(tracers.size(), random)) {
            if (auto attached = tracers[index]->attach(target); !attached) return attached.error();
            for (const size_t shape : shuffled(shapes.size(), random))
                if (auto done = measure_shape(target, measurements[index * shapes.size() + shape]); !done)
                    return done.error();
            if (auto detached = tracers[index]->detach(target); !detached) return detached.error();
        }
    }
    return measurements;
}

}  // namespace memtrace
