#include "cli/cost_watch.hpp"

#include <fmt/format.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cmath>
#include <ctime>

#include "base/log.hpp"
#include "base/units.hpp"

namespace memtrace {
namespace {

constexpr uint64_t millisecond_ns = 1'000'000;
constexpr uint64_t prediction_ns = 300 * millisecond_ns;
constexpr uint64_t measurement_ns = 100 * millisecond_ns;
constexpr uint64_t pause_ns = 900 * millisecond_ns;

timespec timespec_of(uint64_t duration_ns) {
    return {.tv_sec = static_cast<time_t>(duration_ns / 1'000'000'000),
            .tv_nsec = static_cast<long>(duration_ns % 1'000'000'000)};
}

uint64_t rounded(double number) {
    return static_cast<uint64_t>(std::llround(number));
}

/// Two digits are what such a figure is worth.
std::string about(double number) {
    const auto digits = static_cast<int>(std::floor(std::log10(std::max(number, 1.0))));
    const double unit = std::pow(10, std::max(digits - 1, 0));
    return format_count(rounded(std::round(number / unit) * unit));
}

std::string prediction_text(const Overhead& predicted, const TrapPrice& price) {
    if (predicted.hits_per_second < 1)
        return "no allocator calls at the moment; each will cost about " +
               fmt::format("{:.1f} us", (price.emulated_ns + price.return_ns) / 1000);
    return fmt::format("about {} calls/s: tracing them costs {} of a core, or {} when few are sampled",
                       about(predicted.hits_per_second), share_text(predicted.core_share),
                       share_text(predicted.least_share));
}

}  // namespace

CostWatch::CostWatch(const Options& options, Tracer& tracer)
    : options_(options),
      tracer_(tracer),
      meter_(tracer),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
    if (options.max_overhead) budget_.emplace(*options.max_overhead);
}

Result<void> CostWatch::begin() {
    auto begun = meter_.begin();
    if (begun || budget_) return begun;
    log_info(begun.error().what + ": " + begun.error().why);
    return {};
}

Result<void> CostWatch::predict() {
    // A command that is to be started calls nothing yet.
    const size_t commands = options_.command.empty() ? 0 : 1;
    if (tracer_.targets().size() <= commands || (!options_.predicts_cost && !budget_)) return {};
    if (auto begun = begin(); !begun || !meter_.is_counting()) return begun;
    const timespec moment = timespec_of(prediction_ns);
    nanosleep(&moment, nullptr);
    const Overhead predicted = meter_.end_prediction();
    log_info(prediction_text(predicted, meter_.price()));
    if (!budget_) return {};
    const auto mean_bytes = budget_->start(predicted);
    if (!mean_bytes) {
        last_ = predicted;
        log_warning(stop(Overhead{.core_share = predicted.least_share}));
    } else if (*mean_bytes > tracer_.sampling_mean()) {
        tracer_.set_sampling_mean(*mean_bytes);
        log_info(fmt::format("to stay below {} of a core one byte of {} is sampled", share_text(budget_->limit()),
                             format_size(*mean_bytes)));
    }
    return {};
}

Result<void> CostWatch::start() {
    if (stop_reason_) return {};
    // Short sessions end before this is due.
    if (!budget_) wake_after(pause_ns);
    if (!budget_) return {};
    wake_after(measurement_ns);
    return begin();
}

void CostWatch::wake_after(uint64_t duration_ns) {
    const itimerspec timer{.it_interval = {}, .it_value = timespec_of(duration_ns)};
    timerfd_settime(timer_.get(), 0, &timer, nullptr);
}

std::optional<std::string> CostWatch::on_wakeup() {
    uint64_t expirations = 0;
    if (read(timer_.get(), &expirations, sizeof expirations) != sizeof expirations || stop_reason_) return std::nullopt;
    if (!meter_.is_counting()) {
        // What cannot be measured the first time cannot be later either.
        if (begin() && meter_.is_counting()) wake_after(measurement_ns);
        return std::nullopt;
    }
    last_ = meter_.end();
    wake_after(pause_ns);
    return budget_ ? keep_budget() : std::nullopt;
}

std::optional<std::string> CostWatch::keep_budget() {
    const uint32_t before = tracer_.sampling_mean();
    const Budget::Step step = budget_->next(*last_, before);
    if (step.gives_up) return stop(*last_);
    if (step.mean_bytes == before) return std::nullopt;
    tracer_.set_sampling_mean(step.mean_bytes);
    return fmt::format("tracing costs {} of a core, {} are allowed: from now on one byte of {} is sampled",
                       share_text(last_->core_share), share_text(budget_->limit()), format_size(step.mean_bytes));
}

std::string CostWatch::stop(const Overhead& overhead) {
    tracer_.detach();
    stop_reason_ = fmt::format("tracing costs {} of a core at least, {} are allowed", share_text(overhead.core_share),
                               share_text(budget_->limit()));
    last_.reset();
    return *stop_reason_ + ": the probes are taken away, and the figures of heap, mappings and call sites stop here";
}

std::optional<OverheadFigures> CostWatch::figures() const {
    if (!last_) return std::nullopt;
    return OverheadFigures{.hits_per_second = rounded(last_->hits_per_second),
                           .core_share = last_->core_share,
                           .max_core_share = options_.max_overhead};
}

}  // namespace memtrace
