#include "tracing/overhead.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.hpp"
#include "memtrace/sampling_abi.h"
#include "tracing/tracer.hpp"

namespace memtrace {
namespace {

/// What the programs add to the traps of a pair, whole stacks included (README.md, "What it costs"), and what they add
/// when they record nothing.
constexpr double recording_factor = 1.4;
constexpr double passing_factor = 1.1;

ProgramRuns difference(const ProgramRuns& after, const ProgramRuns& before) {
    return {.plain_hits = after.plain_hits - before.plain_hits,
            .session_hits = after.session_hits - before.session_hits,
            .return_hits = after.return_hits - before.return_hits,
            .instruction_hits = after.instruction_hits - before.instruction_hits,
            .run_time_ns = after.run_time_ns - before.run_time_ns};
}

double as_double(uint64_t number) {
    return static_cast<double>(number);
}

}  // namespace

Overhead overhead_of(const ProgramRuns& runs, uint64_t duration_ns, const TrapPrice& price, const HitKinds& kinds,
                     bool is_sampling) {
    if (duration_ns == 0) return {};
    // Of a session's hits half are returns, unless these are skipped.
    const double entries = is_sampling ? as_double(runs.session_hits) : as_double(runs.session_hits) / 2;
    const double returns = as_double(runs.session_hits) - entries + as_double(runs.return_hits);
    const double entry_traps_ns = entries * price.entry_ns(kinds.is_allocation_emulated) +
                                  as_double(runs.plain_hits) * price.entry_ns(kinds.is_free_emulated) +
                                  as_double(runs.instruction_hits) * price.stepped_ns;
    const double traps_ns = entry_traps_ns + returns * price.return_ns;
    const double duration = as_double(duration_ns);
    return {
        .hits_per_second = as_double(runs.hits()) * 1e9 / duration,
        .core_share = (traps_ns + as_double(runs.run_time_ns)) / duration,
        .least_share = passing_factor * (entry_traps_ns + as_double(runs.return_hits) * price.return_ns) / duration};
}

Overhead predicted_overhead(const ProgramRuns& calls, uint64_t duration_ns, const TrapPrice& price,
                            const HitKinds& kinds) {
    if (duration_ns == 0) return {};
    // Nothing is waited for yet: all hits of a session are entries.
    ProgramRuns traps = calls;
    traps.run_time_ns = 0;
    Overhead overhead = overhead_of(traps, duration_ns, price, kinds, true);
    overhead.hits_per_second = as_double(calls.plain_hits + calls.session_hits) * 1e9 / as_double(duration_ns);
    const double returns_share = as_double(calls.session_hits) * price.return_ns / as_double(duration_ns);
    overhead.core_share = recording_factor * (overhead.core_share + returns_share);
    return overhead;
}

std::optional<uint32_t> Budget::start(const Overhead& predicted) const {
    if (predicted.least_share > limit_) return std::nullopt;
    return predicted.core_share > limit_ ? first_mean_bytes : 0;
}

Budget::Step Budget::next(const Overhead& measured, uint32_t mean_bytes) {
    constexpr uint32_t step = 8;
    constexpr uint32_t measurements_before_giving_up = 3;
    measurements_above_least_ = measured.least_share > limit_ ? measurements_above_least_ + 1 : 0;
    if (measured.core_share > limit_) {
        calm_ = 0;
        if (measurements_above_least_ >= measurements_before_giving_up) return {.gives_up = true};
        if (mean_bytes == 0) return {.mean_bytes = first_mean_bytes};
        if (mean_bytes <= MT_MAX_SAMPLING_MEAN_BYTES / step) {
            patience_ = std::min(patience_ * 2, 600u);
            return {.mean_bytes = mean_bytes * step};
        }
        return {.gives_up = measurements_above_least_ > 0, .mean_bytes = mean_bytes};
    }
    calm_ = measured.core_share < limit_ / 2 ? calm_ + 1 : 0;
    if (mean_bytes <= least_mean_bytes || calm_ < patience_) return {.mean_bytes = mean_bytes};
    calm_ = 0;
    return {.mean_bytes = std::max(mean_bytes / step, least_mean_bytes)};
}

Result<void> OverheadMeter::begin() {
    if (!price_) {
        auto price = measure_trap_price(tracer_.rung());
        if (!price) return std::move(price).error();
        price_ = *price;
    }
    auto counting = tracer_.count_program_runs();
    if (!counting) return std::move(counting).error();
    counting_ = std::move(counting).value();
    begin_runs_ = tracer_.program_runs();
    begin_ns_ = monotonic_now_ns();
    return {};
}

OverheadMeter::Interval OverheadMeter::stop() {
    const ProgramRuns runs = tracer_.program_runs();
    const uint64_t duration_ns = monotonic_now_ns() - begin_ns_;
    counting_.reset();
    return {difference(runs, begin_runs_), duration_ns};
}

Overhead OverheadMeter::end() {
    const Interval interval = stop();
    return overhead_of(interval.runs, interval.duration_ns, *price_, tracer_.hit_kinds(), tracer_.sampling_mean() > 1);
}

Overhead OverheadMeter::end_prediction() {
    const Interval interval = stop();
    return predicted_overhead(interval.runs, interval.duration_ns, *price_, tracer_.hit_kinds());
}

std::string share_text(double share) {
    const double percent = 100 * share;
    if (percent > 0 && percent < 0.05) return "<0.1%";
    return fmt::format("{:.1f}%", percent);
}

}  // namespace memtrace
