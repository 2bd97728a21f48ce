// Call sites that are one and the same: the kernel side gives a stack that it could not walk to its end a site of its
// own, each time. Pure; uses the Snapshot.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "heap/snapshot.hpp"

namespace memtrace {

/// For one thread.
class SiteAliases {
  public:
    /// The stack of `site` is known; `places` are the words that tell it from others. `is_of_one_allocation`: another
    /// site may have the same.
    void add_stack(uint32_t site, uint32_t owner, std::span<const uint64_t> places, bool is_of_one_allocation);
    /// Makes one of the sites that have address space, function and stack in common: that with the lowest index, which
    /// has their totals and blocks from now on.
    void apply(Snapshot& snapshot) const;

  private:
    std::unordered_map<uint64_t, std::vector<uint32_t>> sites_by_stack_;
    std::set<uint64_t> shared_stacks_;  // of sites of one allocation
};

}  // namespace memtrace
