// Which parts of an array are in use. Pure; uses nothing.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>

namespace memtrace {

/// Hands out disjoint ranges of [0, size). Not thread-safe.
class RegionAllocator {
  public:
    explicit RegionAllocator(uint32_t size) {
        if (size > 0) free_.emplace(0, size);
    }

    /// First element of a range of `count` that is now in use: the lowest that fits. None if no gap is as large. Of 0
    /// elements the range is empty and anywhere.
    std::optional<uint32_t> take(uint32_t count) {
        if (count == 0) return 0;
        for (auto gap = free_.begin(); gap != free_.end(); ++gap) {
            if (gap->second < count) continue;
            const uint32_t first = gap->first;
            const uint32_t rest = gap->second - count;
            free_.erase(gap);
            if (rest > 0) free_.emplace(first + count, rest);
            return first;
        }
        return std::nullopt;
    }

    /// A range that take() gave is free again.
    void give_back(uint32_t first, uint32_t count) {
        if (count == 0) return;
        auto next = free_.lower_bound(first);
        if (next != free_.end() && next->first == first + count) {
            count += next->second;
            next = free_.erase(next);
        }
        if (next != free_.begin()) {
            const auto before = std::prev(next);
            if (before->first + before->second == first) {
                before->second += count;
                return;
            }
        }
        free_.emplace(first, count);
    }

  private:
    std::map<uint32_t, uint32_t> free_;  // first -> count; no two touch
};

}  // namespace memtrace
