// What a block stands for, of a sampled session too, how uncertain that is, and ages. Pure; uses include/ and
// snapshot.hpp only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>

#include "heap/figures.hpp"
#include "heap/snapshot.hpp"
#include "memtrace/sampling_abi.h"

namespace memtrace {

/// Sums of sampled blocks, of one call site or more: unbiased estimates of all blocks.
struct SampledSums {
    double blocks = 0;
    double size_bytes = 0;
    double variance = 0;  // of `size_bytes`

    void add(const Block& block) {
        const double weight = weight_of(block);
        const auto size = static_cast<double>(block.size_bytes);
        blocks += weight;
        size_bytes += weight * size;
        // Horvitz and Thompson: the sum of (1 - p) / p^2 * size^2 over what was sampled.
        variance += weight * (weight - 1) * size * size;
    }

    /// How many blocks a block stands for; 1 for one that was not sampled.
    static double weight_of(const Block& block) {
        return static_cast<double>(mt_sampling_weight(block.size_bytes, block.sampling_mean_bytes)) /
               static_cast<double>(MT_WEIGHT_ONE);
    }
    /// One standard error of `size_bytes`.
    uint64_t error_bytes() const { return static_cast<uint64_t>(std::llround(std::sqrt(variance))); }
};

/// Whether some of the blocks stand for others.
inline bool has_samples(std::span<const Block> blocks) {
    return std::ranges::any_of(blocks, [](const Block& block) { return block.sampling_mean_bytes > 1; });
}

inline SampledSums sums_of(std::span<const Block> blocks) {
    SampledSums sums;
    for (const Block& block : blocks)
        sums.add(block);
    return sums;
}

std::vector<Block> oldest_first(std::vector<Block> blocks);
/// Ages of blocks that were all recorded; none without blocks.
std::optional<Ages> ages_of(std::span<const uint64_t> births_ns, uint64_t now_ns);
/// Of what the blocks stand for; none without blocks.
std::optional<Ages> estimated_ages(std::span<const Block> blocks, uint64_t now_ns);

}  // namespace memtrace
