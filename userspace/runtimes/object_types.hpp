// Which first words are numbers of types: that of a buffer may look like one. Pure; uses include/ only.
#pragma once

#include <cstdint>
#include <unordered_map>

namespace memtrace {

/// All objects of a class have one size, and what is no object has any: learns the size of each type from all that was
/// seen. String is of any size that has room for its head.
class ObjectTypes {
  public:
    /// `count` allocations of `size_bytes` had `type` in their first word.
    void add(uint32_t type, uint64_t size_bytes, uint64_t count) { counts_[type][size_bytes] += count; }
    /// Whether they are objects of that type rather than buffers.
    bool is_object(uint32_t type, uint64_t size_bytes) const;

  private:
    std::unordered_map<uint32_t, std::unordered_map<uint64_t, uint64_t>> counts_;  // type -> size -> allocations
};

}  // namespace memtrace
