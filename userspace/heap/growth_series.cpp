#include "heap/growth_series.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace memtrace {
namespace {

/// A smaller change over the window is none: of a page of each of the allocator's sizes, or of a hundredth.
constexpr double least_change_bytes = 256 << 10;
constexpr double least_change_share = 0.01;
/// Of the change in the window, at least in each half where it goes on.
constexpr double least_half_share = 0.2;

double as_double(uint64_t value) {
    return static_cast<double>(value);
}

}  // namespace

std::string_view name_of(SeriesPattern pattern) {
    constexpr std::array<std::string_view, 5> names = {"unknown", "flat", "growing", "step", "shrinking"};
    return names[static_cast<size_t>(pattern)];
}

void GrowthSeries::add(uint64_t time_ns, uint64_t bytes) {
    if (!first_) first_ = Sample{time_ns, bytes};
    if (samples_.size() >= most_samples) {
        // The last one stays: the series ends there.
        std::vector<Sample> kept;
        for (size_t i = samples_.size() % 2 == 0 ? 1 : 0; i < samples_.size(); i += 2)
            kept.push_back(samples_[i]);
        samples_ = std::move(kept);
    }
    samples_.push_back({time_ns, bytes});
}

int64_t GrowthSeries::growth_bytes() const {
    return first_ ? static_cast<int64_t>(samples_.back().bytes - first_->bytes) : 0;
}

double GrowthSeries::slope_of(std::span<const Sample> window) {
    double mean_seconds = 0;
    double mean_bytes = 0;
    const auto seconds_of = [&](const Sample& sample) {
        return as_double(sample.time_ns - window.front().time_ns) / 1e9;
    };
    for (const Sample& sample : window) {
        mean_seconds += seconds_of(sample) / as_double(window.size());
        mean_bytes += as_double(sample.bytes) / as_double(window.size());
    }
    double products = 0;
    double squares = 0;
    for (const Sample& sample : window) {
        const double seconds = seconds_of(sample) - mean_seconds;
        products += seconds * (as_double(sample.bytes) - mean_bytes);
        squares += seconds * seconds;
    }
    return products / squares;
}

SeriesTrend GrowthSeries::trend() const {
    SeriesTrend trend;
    if (!first_) return trend;
    const uint64_t elapsed_ns = samples_.back().time_ns - first_->time_ns;
    const uint64_t begin_ns = first_->time_ns + std::min(elapsed_ns / 3, longest_warm_up_ns);
    const auto begin = std::ranges::lower_bound(samples_, begin_ns, {}, &Sample::time_ns);
    const std::span<const Sample> window(begin, samples_.end());
    if (window.size() < fewest_samples || window.front().time_ns == window.back().time_ns) return trend;
    trend.window_ns = window.back().time_ns - window.front().time_ns;
    trend.slope_bytes_per_second = slope_of(window);
    if (trend.window_ns < shortest_window_ns) return trend;
    const auto half =
        std::ranges::lower_bound(window, window.front().time_ns + trend.window_ns / 2, {}, &Sample::time_ns);
    const double first_change = as_double(half->bytes) - as_double(window.front().bytes);
    const double second_change = as_double(window.back().bytes) - as_double(half->bytes);
    const double change = first_change + second_change;
    const double least = std::max(least_change_bytes, least_change_share * as_double(window.front().bytes));
    if (std::abs(change) < least)
        trend.pattern = SeriesPattern::flat;
    else if (change < 0)
        trend.pattern = SeriesPattern::shrinking;
    else
        trend.pattern = std::min(first_change, second_change) >= least_half_share * change ? SeriesPattern::growing
                                                                                           : SeriesPattern::step;
    return trend;
}

}  // namespace memtrace
