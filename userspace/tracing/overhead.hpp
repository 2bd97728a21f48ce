// What tracing costs, and what to do when that is more than was asked for. Pure but for OverheadMeter; uses kernel/ and
// tracer.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "kernel/session.hpp"
#include "kernel/trap_price.hpp"

namespace memtrace {

class Tracer;

/// What the hot functions of the targets' allocator carry.
struct HitKinds {
    bool is_allocation_emulated = true;
    bool is_free_emulated = true;
};

/// Shares are of one core: 0.05 is 50 ms in a second. Of all targets together.
struct Overhead {
    double hits_per_second = 0;  // of all probes
    double core_share = 0;       // traps and programs
    double least_share = 0;      // what would be left if no allocation were sampled
};

/// What `runs`, which took `duration_ns`, cost. `is_sampling`: most calls were not sampled.
Overhead overhead_of(const ProgramRuns& runs, uint64_t duration_ns, const TrapPrice& price, const HitKinds& kinds,
                     bool is_sampling);

/// What `calls`, counted while nothing was recorded, will cost: `core_share` with every block recorded. The programs
/// add to the traps what `make bench` says.
Overhead predicted_overhead(const ProgramRuns& calls, uint64_t duration_ns, const TrapPrice& price,
                            const HitKinds& kinds);

/// Keeps the overhead below a share of one core by the distance of sampling: more or less of the work behind an entry's
/// trap is left out. The entry's trap is paid for every call, so a budget below that cannot be kept.
class Budget {
  public:
    explicit Budget(double core_share) : limit_(core_share) {}

    /// Distances are powers of two times the first one.
    static constexpr uint32_t first_mean_bytes = 512u << 10;
    static constexpr uint32_t least_mean_bytes = 8u << 10;

    double limit() const { return limit_; }
    /// The distance to start with, 0 for none; none: it cannot be kept.
    std::optional<uint32_t> start(const Overhead& predicted) const;

    struct Step {
        bool gives_up = false;
        uint32_t mean_bytes = 0;  // from now on
    };
    /// After each measurement.
    Step next(const Overhead& measured, uint32_t mean_bytes);

  private:
    double limit_;
    uint32_t measurements_above_least_ = 0;
    uint32_t calm_ = 0;
    uint32_t patience_ = 5;  // measurements far below the limit before more is sampled; doubles with each retreat
};

/// Measures the overhead of a tracer for moments, with the kernel's count of program runs. For one thread.
class OverheadMeter {
  public:
    explicit OverheadMeter(const Tracer& tracer) : tracer_(tracer) {}

    /// Starts to count. Errors: see Session::count_program_runs, measure_trap_price.
    Result<void> begin();
    bool is_counting() const { return counting_.has_value(); }
    /// What ran since begin(), which ends the counting.
    Overhead end();
    /// As end(), of unarmed probes: what the calls will cost when they are traced.
    Overhead end_prediction();
    /// Once begin() has succeeded.
    const TrapPrice& price() const { return *price_; }

  private:
    struct Interval {
        ProgramRuns runs;
        uint64_t duration_ns = 0;
    };
    Interval stop();

    const Tracer& tracer_;
    std::optional<TrapPrice> price_;
    std::optional<Fd> counting_;
    ProgramRuns begin_runs_;
    uint64_t begin_ns_ = 0;
};

/// "0.4%", "16.0%".
std::string share_text(double share);

}  // namespace memtrace
