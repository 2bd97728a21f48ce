#include "runtimes/census_growth.hpp"

#include <algorithm>
#include <tuple>

namespace memtrace {
namespace {

int64_t difference(uint64_t now, uint64_t before) {
    return static_cast<int64_t>(now - before);
}

GrowthPattern pattern_of(const CensusGrowth& growth) {
    if (growth.sizes.empty() || growth.risen_bytes < CensusHistory::least_risen_bytes) return GrowthPattern::none;
    const auto most = static_cast<uint64_t>(std::max<int64_t>(growth.sizes.front().growth_bytes, 0));
    return 2 * most > growth.risen_bytes ? GrowthPattern::one_size : GrowthPattern::mixed;
}

}  // namespace

CensusGrowth CensusHistory::add(const GlibcCensus& census) {
    std::map<Key, ChunkSizeSums> now;
    for (const auto& [key, size] : sizes_)
        now[key] = {};
    for (const ChunkSizeSums& sums : census.sizes)
        now[{sums.is_mapped, sums.chunk_bytes}] = sums;
    const uint64_t in_use_bytes = census.in_use.size_bytes + census.mapped.size_bytes;
    if (!has_first_) first_in_use_bytes_ = in_use_bytes;
    CensusGrowth growth;
    growth.growth_bytes = difference(in_use_bytes, first_in_use_bytes_);
    for (const auto& [key, sums] : now) {
        const ChunkSum& in_use = sums.in_use;
        Size& size = sizes_[key];
        if (!has_first_) size = {.first_bytes = in_use.size_bytes, .first_blocks = in_use.chunks};
        if (has_first_ && in_use.size_bytes <= size.last_bytes) size.has_grown_each_time = false;
        size.last_bytes = in_use.size_bytes;
        const int64_t growth_bytes = difference(in_use.size_bytes, size.first_bytes);
        growth.risen_bytes += static_cast<uint64_t>(std::max<int64_t>(growth_bytes, 0));
        growth.sizes.push_back({.chunk_bytes = key.second,
                                .is_mapped = key.first,
                                .in_use = in_use,
                                .free = sums.free,
                                .growth_bytes = growth_bytes,
                                .growth_blocks = difference(in_use.chunks, size.first_blocks),
                                .has_grown_each_time = has_first_ && size.has_grown_each_time});
    }
    std::ranges::stable_sort(growth.sizes, std::greater(), [](const SizeGrowth& size) {
        return std::tuple(size.growth_bytes, size.in_use.size_bytes);
    });
    growth.pattern = pattern_of(growth);
    has_first_ = true;
    return growth;
}

}  // namespace memtrace
