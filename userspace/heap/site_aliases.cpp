#include "heap/site_aliases.hpp"

#include <algorithm>
#include <map>

namespace memtrace {
namespace {

/// FNV-1a over words, finished as splitmix64 does.
uint64_t hash_of(uint32_t owner, std::span<const uint64_t> words) {
    uint64_t hash = 0xcbf29ce484222325 ^ owner;
    for (const uint64_t word : words)
        hash = (hash ^ word) * 0x100000001b3;
    hash ^= hash >> 31;
    return hash * 0x94d049bb133111eb;
}

}  // namespace

void SiteAliases::add_stack(uint32_t site, uint32_t owner, std::span<const uint64_t> places,
                            bool is_of_one_allocation) {
    const uint64_t stack = hash_of(owner, places);
    std::vector<uint32_t>& sites = sites_by_stack_[stack];
    if (std::ranges::find(sites, site) == sites.end()) sites.push_back(site);
    if (is_of_one_allocation) shared_stacks_.insert(stack);
}

void SiteAliases::apply(Snapshot& snapshot) const {
    if (shared_stacks_.empty()) return;
    std::unordered_map<uint32_t, size_t> positions;
    for (size_t position = 0; position < snapshot.sites.size(); ++position)
        positions.emplace(snapshot.sites[position].index, position);
    std::unordered_map<uint32_t, uint32_t> aliases;
    for (const uint64_t stack : shared_stacks_) {
        std::vector<uint32_t> sites = sites_by_stack_.at(stack);
        std::ranges::sort(sites);
        std::map<uint32_t, size_t> first_of_row;
        for (const uint32_t index : sites) {
            const auto position = positions.find(index);
            if (position == positions.end()) continue;
            const Site& site = snapshot.sites[position->second];
            const auto [first, is_first] = first_of_row.emplace(site.row, position->second);
            if (is_first) continue;
            snapshot.sites[first->second].totals += site.totals;
            aliases.emplace(index, snapshot.sites[first->second].index);
        }
    }
    std::erase_if(snapshot.sites, [&](const Site& site) { return aliases.contains(site.index); });
    for (Block& block : snapshot.blocks)
        if (const auto alias = aliases.find(block.site); alias != aliases.end()) block.site = alias->second;
}

}  // namespace memtrace
