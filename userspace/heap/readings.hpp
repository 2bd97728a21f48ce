// What a snapshot says of each call site that was ever used, and which live blocks are its own. Pure; the first step
// from a snapshot to the figures of a report.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/large_vector.hpp"
#include "heap/mappings.hpp"
#include "heap/snapshot.hpp"

namespace memtrace {

/// `larger - smaller`, 0 where it is the other way round: figures that are read while the program runs may be.
inline uint64_t difference(uint64_t larger, uint64_t smaller) {
    return larger > smaller ? larger - smaller : 0;
}

/// What makes call sites of several address spaces one and the same.
struct SiteKey {
    StackHash stack{};
    uint32_t row = 0;
    bool is_mapping = false;

    friend bool operator==(const SiteKey&, const SiteKey&) = default;
};

struct SiteKeyHash {
    size_t operator()(const SiteKey& key) const {
        return key.stack[0] ^ (key.stack[1] * 0x9e3779b97f4a7c15) ^ (uint64_t{key.row} << 1 | uint64_t{key.is_mapping});
    }
};

/// One used call site of one address space. Points into the snapshot.
struct SiteReading {
    const Site* site = nullptr;
    SiteKey key;
    SiteTotals totals;
    MappingParts parts;      // of a mapping's live bytes
    bool is_living = false;  // what it holds is live; else it is ended

    uint64_t live_bytes() const { return is_living ? totals.live_bytes() : 0; }
    uint64_t live_blocks() const { return is_living ? totals.live_blocks() : 0; }
};

/// One address space. Points into the snapshot.
struct SpaceReading {
    const AddressSpace* space = nullptr;
    MappingTotals mappings;
    bool is_living = true;

    /// What it still held is unmapped.
    void end() {
        mappings.unmapped_bytes += mappings.live_bytes;
        mappings.live_bytes = 0;
        mappings.live_count = 0;
        mappings.parts = {};
        is_living = false;
    }
};

/// Valid as long as the snapshot.
struct Readings {
    std::vector<SpaceReading> spaces;
    std::vector<SiteReading> sites;
};

/// `exited`: processes that are shown as they ended: the last address space of each is a living one.
Readings read_sites(const Snapshot& snapshot, const MappingLedger& ledger, std::span<const pid_t> exited);

/// Live blocks and live mappings that are old enough, by call site.
class BlocksBySite {
  public:
    BlocksBySite(const Snapshot& snapshot, const MappingLedger& ledger, uint64_t older_ns);
    std::span<const uint64_t> births_of(uint32_t site) const { return part_of<uint64_t>(births_ns_, site); }
    /// None where the snapshot has only their births.
    std::span<const Block> blocks_of(uint32_t site) const {
        return blocks_.empty() ? std::span<const Block>() : part_of<Block>(blocks_, site);
    }

  private:
    template <typename Item>
    std::span<const Item> part_of(std::span<const Item> items, uint32_t site) const {
        if (site + size_t{1} >= firsts_.size()) return {};
        return items.subspan(firsts_[site], firsts_[site + 1] - firsts_[site]);
    }

    std::vector<size_t> firsts_;  // by site: where its own begin, which is where those of the site before end
    LargeVector<uint64_t> births_ns_;
    LargeVector<Block> blocks_;
};

}  // namespace memtrace
