// Which sizes of blocks grow from one census of a malloc to the next: pure functions of censuses. Uses glibc_census.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "runtimes/glibc_census.hpp"

namespace memtrace {

/// Blocks in chunks of one size, since the first census.
struct SizeGrowth {
    uint64_t chunk_bytes = 0;
    bool is_mapped = false;
    ChunkSum in_use;  // now
    ChunkSum free;
    int64_t growth_bytes = 0;
    int64_t growth_blocks = 0;
    bool has_grown_each_time = false;  // from each census to the next
};

/// What can be said of a growth.
enum class GrowthPattern : uint8_t {
    none,      // nothing has grown that is worth a word
    one_size,  // one size has more than half of what has grown
    mixed,     // no size stands out
};

struct CensusGrowth {
    int64_t growth_bytes = 0;  // of all in use, those with a mapping of their own too
    uint64_t risen_bytes = 0;  // the sum of the sizes that have grown
    GrowthPattern pattern = GrowthPattern::none;
    std::vector<SizeGrowth> sizes;  // by growth_bytes, what has grown most first
};

/// Remembers the first census and the last one. For one thread.
class CensusHistory {
  public:
    /// Less than that is how a heap breathes.
    static constexpr uint64_t least_risen_bytes = 64 << 10;

    /// What has grown from the first census to `census`; nothing when it is the first.
    CensusGrowth add(const GlibcCensus& census);

  private:
    struct Size {
        uint64_t first_bytes = 0;
        uint64_t first_blocks = 0;
        uint64_t last_bytes = 0;
        bool has_grown_each_time = true;
    };

    using Key = std::pair<bool, uint64_t>;  // mapped, size

    bool has_first_ = false;
    uint64_t first_in_use_bytes_ = 0;
    std::map<Key, Size> sizes_;
};

}  // namespace memtrace
