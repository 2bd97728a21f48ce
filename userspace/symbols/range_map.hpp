// Which of many address ranges, nested in each other, holds an address. Uses nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace memtrace {

class RangeMap {
  public:
    /// [start, end) belongs to `value`. Of several ranges that hold an address the one with the greatest `depth` is
    /// found, then the one that starts last. Call sort() before find(). Empty ranges are ignored.
    void add(uint64_t start, uint64_t end, uint32_t value, uint32_t depth = 0);
    void sort();
    std::optional<uint32_t> find(uint64_t address) const;
    size_t size() const { return ranges_.size(); }

  private:
    struct Range {
        uint64_t start = 0;
        uint64_t end = 0;
        uint64_t greatest_end = 0;  // of this and all before
        uint32_t value = 0;
        uint32_t depth = 0;
    };
    std::vector<Range> ranges_;  // by start, then depth
};

}  // namespace memtrace
