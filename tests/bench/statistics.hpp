// Order statistics of a handful of measurements. Uses nothing of the project.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace memtrace {

/// The value below which `share` (0 to 1) of the values lie, by the nearest rank; `values` has at least one.
inline double quantile(std::vector<double> values, double share) {
    std::sort(values.begin(), values.end());
    const double rank = share * static_cast<double>(values.size() - 1);
    return values[static_cast<size_t>(std::lround(rank))];
}

inline double median(const std::vector<double>& values) {
    return quantile(values, 0.5);
}

}  // namespace memtrace
