#include "heap/sampling.hpp"

#include <algorithm>
#include <tuple>
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

std::optional<Ages> ages_of(std::span<const Block> blocks, uint64_t now_ns) {
    if (blocks.empty()) return std::nullopt;
    std::vector<uint64_t> ages;
    ages.reserve(blocks.size());
    for (const Block& block : blocks)
        ages.push_back(now_ns - std::min(now_ns, block.birth_ns));
    const auto median = ages.begin() + static_cast<std::ptrdiff_t>((ages.size() - 1) / 2);
    std::nth_element(ages.begin(), median, ages.end());
    return Ages{*std::min_element(ages.begin(), median + 1), *median, *std::max_element(median, ages.end())};
}

std::vector<Block> oldest_first(std::vector<Block> blocks) {
    std::sort(blocks.begin(), blocks.end(), [](const Block& left, const Block& right) {
        return std::tie(left.birth_ns, left.address) < std::tie(right.birth_ns, right.address);
    });
    return blocks;
}

}  // namespace memtrace
