#include "heap/inheritance.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "heap/sampling.hpp"

namespace memtrace {

/// Sums by call site.
class Inheritance::Sums {
  public:
    void add(uint32_t site, const Totals& totals) {
        Totals& sum = by_site_[site];
        sum.bytes += totals.bytes;
        sum.blocks += totals.blocks;
    }
    std::vector<InheritedSite> sites() const {
        std::vector<InheritedSite> sites;
        for (const auto& [site, sum] : by_site_)
            if (sum.blocks > 0)
                sites.push_back({site, static_cast<uint64_t>(std::llround(sum.bytes)),
                                 static_cast<uint64_t>(std::llround(sum.blocks))});
        return sites;
    }

  private:
    std::map<uint32_t, Totals> by_site_;
};

Inheritance::Inheritance(const Snapshot& snapshot, uint64_t older_ns) {
    add_nodes(snapshot);
    if (nodes_.empty()) return;
    for (const InheritedFree& freed : snapshot.inherited_frees) {
        frees_[{freed.owner, freed.address}] = freed.forks;
        noted_addresses_.insert(freed.address);
    }
    add_blocks(snapshot, older_ns);
    resolve_frees();
}

/// Those that have a parent or a child.
void Inheritance::add_nodes(const Snapshot& snapshot) {
    std::unordered_map<uint32_t, const AddressSpace*> spaces;
    for (const AddressSpace& space : snapshot.address_spaces)
        if (space.parent_owner != 0) spaces[space.owner] = &space;
    if (spaces.empty()) return;
    for (const AddressSpace& space : snapshot.address_spaces) {
        const auto child = spaces.find(space.owner);
        if (child == spaces.end()) continue;
        Node& node = nodes_[space.owner];
        node.parent = space.parent_owner;
        node.fork_number = space.fork_number;
        nodes_[space.parent_owner].children.push_back(space.owner);
    }
}

void Inheritance::add_block(const Block& block, uint32_t freed_forks, bool is_counted) {
    Node& node = nodes_.at(block.owner);
    const Span span{block.forks, freed_forks, block.site};
    const double weight = SampledSums::weight_of(block);
    const Totals of_block{weight * static_cast<double>(block.size_bytes), weight};
    if (noted_addresses_.contains(block.address)) {
        node.noted_blocks.push_back({span, block.address, of_block, is_counted});
        return;
    }
    if (!is_counted) return;
    Totals& totals = node.spans[span];
    totals.bytes += of_block.bytes;
    totals.blocks += of_block.blocks;
}

void Inheritance::add_blocks(const Snapshot& snapshot, uint64_t older_ns) {
    const auto is_old = [&](const Block& block) {
        return snapshot.time_ns - std::min(snapshot.time_ns, block.birth_ns) >= older_ns;
    };
    const auto has_children = [&](uint32_t owner) {
        const auto node = nodes_.find(owner);
        return node != nodes_.end() && !node->second.children.empty();
    };
    // A block that a failed realloc put back, or that was freed while it was read, has a ghost besides.
    std::unordered_map<Place, std::map<uint64_t, Ghost>, PlaceHash> ghosts;  // by birth
    for (const Ghost& ghost : snapshot.ghosts) {
        if (!has_children(ghost.block.owner)) continue;
        Ghost& known = ghosts[{ghost.block.owner, ghost.block.address}][ghost.block.birth_ns];
        if (known.forks <= ghost.forks) known = ghost;
    }
    for (const Block& block : snapshot.inheritable) {
        if (!has_children(block.owner)) continue;
        add_block(block, UINT32_MAX, is_old(block));
        if (const auto same = ghosts.find({block.owner, block.address}); same != ghosts.end())
            same->second.erase(block.birth_ns);
    }
    for (const auto& [place, by_birth] : ghosts)
        for (const auto& [birth_ns, ghost] : by_birth)
            add_block(ghost.block, ghost.forks, is_old(ghost.block));
}

/// Did `owner` give back what it had inherited at `address`, before its fork `before_fork`?
bool Inheritance::gave_back(uint32_t owner, uint64_t address, uint32_t before_fork) const {
    const auto freed = frees_.find({owner, address});
    return freed != frees_.end() && freed->second < before_fork;
}

void Inheritance::resolve_frees() {
    std::unordered_map<Place, std::vector<Span>, PlaceHash> spans;
    for (const auto& [owner, node] : nodes_)
        for (const NotedBlock& block : node.noted_blocks)
            spans[{owner, block.address}].push_back(block.span);
    for (const auto& [place, forks] : frees_) {
        bool is_inherited = false;
        auto child = nodes_.find(place.owner);
        while (!is_inherited && child != nodes_.end() && child->second.parent != 0) {
            const uint32_t parent = child->second.parent;
            const uint32_t number = child->second.fork_number;
            if (const auto found = spans.find({parent, place.address}); found != spans.end())
                is_inherited =
                    std::ranges::any_of(found->second, [&](const Span& span) { return span.has_fork(number); });
            if (gave_back(parent, place.address, number)) break;
            child = nodes_.find(parent);
        }
        if (!is_inherited) ++unknown_frees_[place.owner];
    }
}

std::vector<InheritedSite> Inheritance::inherited(uint32_t owner) const {
    Sums sums;
    std::vector<std::pair<uint32_t, uint32_t>> on_the_way = {{owner, UINT32_MAX}};  // owner and its fork downwards
    const auto is_gone = [&](uint64_t address) {
        return std::ranges::any_of(
            on_the_way, [&](const auto& between) { return gave_back(between.first, address, between.second); });
    };
    auto child = nodes_.find(owner);
    while (child != nodes_.end() && child->second.parent != 0) {
        const uint32_t number = child->second.fork_number;
        const uint32_t parent = child->second.parent;
        const Node& node = nodes_.at(parent);
        for (const auto& [span, totals] : node.spans)
            if (span.has_fork(number)) sums.add(span.site, totals);
        for (const NotedBlock& block : node.noted_blocks)
            if (block.is_counted && block.span.has_fork(number) && !is_gone(block.address))
                sums.add(block.span.site, block.totals);
        on_the_way.emplace_back(parent, number);
        child = nodes_.find(parent);
    }
    return sums.sites();
}

/// Is `owner`, or what it forked, in the set?
bool Inheritance::has_any_in(uint32_t owner, const std::unordered_set<uint32_t>& owners) const {
    if (owners.contains(owner)) return true;
    return std::ranges::any_of(nodes_.at(owner).children, [&](uint32_t child) { return has_any_in(child, owners); });
}

/// In order.
std::vector<uint32_t> Inheritance::forks_that_lead_to(const Node& node,
                                                      const std::unordered_set<uint32_t>& owners) const {
    std::vector<uint32_t> forks;
    for (const uint32_t child : node.children)
        if (has_any_in(child, owners)) forks.push_back(nodes_.at(child).fork_number);
    std::ranges::sort(forks);
    return forks;
}

/// Does `owner`, which inherited the block at `address`, or what it forked, still have it, and is that in the set?
bool Inheritance::is_held_in(uint32_t owner, uint64_t address, const std::unordered_set<uint32_t>& owners) const {
    const auto freed = frees_.find({owner, address});
    if (freed == frees_.end() && owners.contains(owner)) return true;
    return std::ranges::any_of(nodes_.at(owner).children, [&](uint32_t child) {
        return !gave_back(owner, address, nodes_.at(child).fork_number) && is_held_in(child, address, owners);
    });
}

std::vector<InheritedSite> Inheritance::held_beside_live(const std::unordered_set<uint32_t>& owners) const {
    // The same, and it looks upwards only: there may be a thousand such scopes.
    if (owners.size() == 1) return inherited(*owners.begin());
    Sums sums;
    for (const auto& [owner, node] : nodes_) {
        if (node.children.empty()) continue;
        const bool is_living = owners.contains(owner);
        const std::vector<uint32_t> forks = forks_that_lead_to(node, owners);
        for (const auto& [span, totals] : node.spans) {
            if (span.is_live() && is_living) continue;
            const auto first = std::ranges::upper_bound(forks, span.born_forks);
            if (first != forks.end() && span.has_fork(*first)) sums.add(span.site, totals);
        }
        for (const NotedBlock& block : node.noted_blocks) {
            if (!block.is_counted || (block.span.is_live() && is_living)) continue;
            const bool is_held = std::ranges::any_of(node.children, [&](uint32_t child) {
                return block.span.has_fork(nodes_.at(child).fork_number) && is_held_in(child, block.address, owners);
            });
            if (is_held) sums.add(block.span.site, block.totals);
        }
    }
    return sums.sites();
}

uint64_t Inheritance::unknown_frees(uint32_t owner) const {
    const auto found = unknown_frees_.find(owner);
    return found == unknown_frees_.end() ? 0 : found->second;
}

void count_unknown_frees(Snapshot& snapshot) {
    if (snapshot.inherited_frees.empty()) return;
    const Inheritance inheritance(snapshot);
    for (AddressSpace& space : snapshot.address_spaces)
        space.counters[MT_COUNT_UNKNOWN_FREES] += inheritance.unknown_frees(space.owner);
}

}  // namespace memtrace
