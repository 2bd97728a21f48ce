// What fork children hold of their parents' blocks, and what a tree of processes holds once. Nothing was copied when
// they forked: it follows from which forks a block saw, and from what children gave back. Pure; uses the Snapshot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "heap/snapshot.hpp"

namespace memtrace {

/// Inherited blocks of one call site, which is the parent's.
struct InheritedSite {
    uint32_t site = 0;  // Site::index
    uint64_t bytes = 0;
    uint64_t blocks = 0;
};

/// Keeps nothing of the snapshot but what it needs. For one thread.
class Inheritance {
  public:
    /// Only blocks that are at least `older_ns` old are counted.
    explicit Inheritance(const Snapshot& snapshot, uint64_t older_ns = 0);

    /// What `owner` has inherited, at any number of forks, and not given back; sites in the order of their index.
    std::vector<InheritedSite> inherited(uint32_t owner) const;

    /// The roll-up of a tree, or of any other set of processes. `owners` are their living address spaces. The answer
    /// is what they hold beside their own live blocks, each block once however many of them have it: blocks of owners
    /// outside the set, and of owners inside that have given them back. So a tree's live figures are
    ///     the sum of live_bytes over its processes + the sum of this
    /// and no block is in both. Sites are those of the owner that allocated.
    std::vector<InheritedSite> held_beside_live(const std::unordered_set<uint32_t>& owners) const;

    /// Nobody was forked.
    bool is_empty() const { return nodes_.empty(); }
    /// Frees of `owner` that were noted, but were of nothing that it had inherited: unknown frees.
    uint64_t unknown_frees(uint32_t owner) const;

  private:
    /// Blocks that the same children inherit: those of the forks `born_forks` + 1 to `freed_forks` of their owner.
    struct Span {
        uint32_t born_forks = 0;
        uint32_t freed_forks = 0;  // UINT32_MAX: live
        uint32_t site = 0;
        bool operator<(const Span& other) const {
            return std::tie(born_forks, freed_forks, site) < std::tie(other.born_forks, other.freed_forks, other.site);
        }
        bool is_live() const { return freed_forks == UINT32_MAX; }
        bool has_fork(uint32_t number) const { return born_forks < number && number <= freed_forks; }
    };
    /// What blocks stand for: of sampled ones, estimates.
    struct Totals {
        double bytes = 0;
        double blocks = 0;
    };
    /// A block that somebody may have given back on his own.
    struct NotedBlock {
        Span span;
        uint64_t address = 0;
        Totals totals;
        bool is_counted = true;  // is old enough
    };
    struct Node {
        uint32_t parent = 0;
        uint32_t fork_number = 0;
        std::vector<uint32_t> children;
        std::map<Span, Totals> spans;
        std::vector<NotedBlock> noted_blocks;
    };
    struct Place {
        uint32_t owner = 0;
        uint64_t address = 0;
        bool operator==(const Place&) const = default;
    };
    struct PlaceHash {
        size_t operator()(const Place& place) const {
            return (place.address ^ uint64_t{place.owner} << 48) * 0x9e3779b97f4a7c15 >> 16;
        }
    };
    class Sums;

    void add_nodes(const Snapshot& snapshot);
    void add_blocks(const Snapshot& snapshot, uint64_t older_ns);
    void add_block(const Block& block, uint32_t freed_forks, bool is_counted);
    void resolve_frees();
    bool gave_back(uint32_t owner, uint64_t address, uint32_t before_fork) const;
    bool is_held_in(uint32_t owner, uint64_t address, const std::unordered_set<uint32_t>& owners) const;
    bool has_any_in(uint32_t owner, const std::unordered_set<uint32_t>& owners) const;
    std::vector<uint32_t> forks_that_lead_to(const Node& node, const std::unordered_set<uint32_t>& owners) const;

    std::unordered_map<uint32_t, Node> nodes_;              // by owner
    std::unordered_map<Place, uint32_t, PlaceHash> frees_;  // InheritedFree::forks
    std::unordered_set<uint64_t> noted_addresses_;
    std::unordered_map<uint32_t, uint64_t> unknown_frees_;
};

/// Frees that were noted and are of nothing inherited become unknown frees of their address spaces.
void count_unknown_frees(Snapshot& snapshot);

}  // namespace memtrace
