#include "heap/sampling.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace memtrace {

std::optional<Ages> estimated_ages(std::span<const Block> blocks, uint64_t now_ns) {
    if (blocks.empty()) return std::nullopt;
    std::vector<std::pair<uint64_t, double>> ages;
    double total = 0;
    for (const Block& block : blocks) {
        ages.emplace_back(now_ns - std::min(now_ns, block.birth_ns), SampledSums::weight_of(block));
        total += ages.back().second;
    }
    std::sort(ages.begin(), ages.end());
    double below = 0;
    const auto median = std::find_if(ages.begin(), ages.end(), [&](const auto& age) {
        below += age.second;
        return below >= total / 2;
    });
    return Ages{ages.front().first, median == ages.end() ? ages.back().first : median->first, ages.back().first};
}

}  // namespace memtrace
