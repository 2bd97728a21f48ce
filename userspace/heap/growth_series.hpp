// How a figure grows over time: the slope and the pattern of a series, with what a program does at first left out.
// Pure; uses nothing of the project.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace memtrace {

enum class SeriesPattern : uint8_t {
    unknown,  // too short to tell
    flat,
    growing,  // in both halves of the window
    step,     // in one half, and not in the other
    shrinking,
};
/// As JSON has it.
std::string_view name_of(SeriesPattern pattern);

/// What a series does in its window.
struct SeriesTrend {
    uint64_t window_ns = 0;                        // without the warm-up; 0: nothing can be said
    std::optional<double> slope_bytes_per_second;  // by least squares
    SeriesPattern pattern = SeriesPattern::unknown;
};

/// Sums in bytes by time. For one thread.
class GrowthSeries {
  public:
    /// The first third of a series, but no more than this, is warm-up.
    static constexpr uint64_t longest_warm_up_ns = 30'000'000'000;
    /// A shorter window has no pattern.
    static constexpr uint64_t shortest_window_ns = 60'000'000'000;
    static constexpr size_t fewest_samples = 4;
    /// Of samples that are kept; of a longer series every second one is forgotten.
    static constexpr size_t most_samples = 4096;

    /// `time_ns` never goes back.
    void add(uint64_t time_ns, uint64_t bytes);
    /// From the first sample to the last one.
    int64_t growth_bytes() const;
    SeriesTrend trend() const;

  private:
    struct Sample {
        uint64_t time_ns;
        uint64_t bytes;
    };
    /// Bytes a second, by least squares; of at least two samples of different times.
    static double slope_of(std::span<const Sample> window);

    std::optional<Sample> first_;
    std::vector<Sample> samples_;
};

}  // namespace memtrace
