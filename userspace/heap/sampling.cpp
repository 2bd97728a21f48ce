#include "heap/sampling.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <tuple>
#include <utility>
#include <vector>

namespace memtrace {
namespace {

/// The value that `rank` others are before in the order of size. Of many values only those near it are looked at twice.
uint64_t nth_of(std::span<const uint64_t> values, size_t rank, uint64_t smallest, uint64_t largest) {
    constexpr int bucket_bits = 12;
    std::vector<uint64_t> near;
    if (values.size() < (1u << bucket_bits)) {
        near.assign(values.begin(), values.end());
        std::nth_element(near.begin(), near.begin() + static_cast<std::ptrdiff_t>(rank), near.end());
        return near[rank];
    }
    const int shift = std::max(static_cast<int>(std::bit_width(largest - smallest)) - bucket_bits, 0);
    std::array<uint32_t, (1u << bucket_bits)> counts{};
    for (const uint64_t value : values)
        ++counts[(value - smallest) >> shift];
    size_t bucket = 0;
    while (rank >= counts[bucket])
        rank -= counts[bucket++];
    for (const uint64_t value : values)
        if ((value - smallest) >> shift == bucket) near.push_back(value);
    const auto nth = near.begin() + static_cast<std::ptrdiff_t>(rank);
    std::nth_element(near.begin(), nth, near.end());
    return *nth;
}

}  // namespace

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

std::optional<Ages> ages_of(std::span<const uint64_t> births_ns, uint64_t now_ns) {
    if (births_ns.empty()) return std::nullopt;
    const auto [oldest, youngest] = std::ranges::minmax(births_ns);
    // The lower median of the ages is the upper one of the births.
    const uint64_t median = nth_of(births_ns, births_ns.size() / 2, oldest, youngest);
    const auto age = [now_ns](uint64_t birth_ns) { return now_ns - std::min(now_ns, birth_ns); };
    return Ages{age(youngest), age(median), age(oldest)};
}

std::vector<Block> oldest_first(std::vector<Block> blocks) {
    std::sort(blocks.begin(), blocks.end(), [](const Block& left, const Block& right) {
        return std::tie(left.birth_ns, left.address) < std::tie(right.birth_ns, right.address);
    });
    return blocks;
}

}  // namespace memtrace
