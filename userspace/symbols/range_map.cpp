#include "symbols/range_map.hpp"

#include <algorithm>
#include <tuple>

namespace memtrace {

void RangeMap::add(uint64_t start, uint64_t end, uint32_t value, uint32_t depth) {
    if (start < end) ranges_.push_back({start, end, 0, value, depth});
}

void RangeMap::sort() {
    std::stable_sort(ranges_.begin(), ranges_.end(), [](const Range& left, const Range& right) {
        return std::tie(left.start, left.depth) < std::tie(right.start, right.depth);
    });
    uint64_t greatest_end = 0;
    for (Range& range : ranges_)
        range.greatest_end = greatest_end = std::max(greatest_end, range.end);
}

std::optional<uint32_t> RangeMap::find(uint64_t address) const {
    auto range = std::upper_bound(ranges_.begin(), ranges_.end(), address,
                                  [](uint64_t wanted, const Range& candidate) { return wanted < candidate.start; });
    const Range* deepest = nullptr;
    while (range != ranges_.begin() && (--range)->greatest_end > address)
        if (range->end > address && (!deepest || range->depth > deepest->depth)) deepest = &*range;
    return deepest ? std::optional(deepest->value) : std::nullopt;
}

}  // namespace memtrace
