#include "heap/site_blocks.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "heap/sampling.hpp"

namespace memtrace {
namespace {

/// One entry a process, those that hold most first.
void keep_most(SiteFigures& site, std::vector<SiteHolder> parts) {
    std::ranges::sort(parts, {}, &SiteHolder::pid);
    std::vector<SiteHolder> holders;
    for (const SiteHolder& part : parts) {
        if (part.live_blocks == 0) continue;
        if (holders.empty() || holders.back().pid != part.pid) holders.push_back({part.pid, 0, 0});
        holders.back().live_bytes += part.live_bytes;
        holders.back().live_blocks += part.live_blocks;
    }
    site.holders_total = holders.size();
    std::ranges::sort(holders, [](const SiteHolder& left, const SiteHolder& right) {
        return std::tuple(right.live_bytes, right.live_blocks, left.pid) <
               std::tuple(left.live_bytes, left.live_blocks, right.pid);
    });
    if (holders.size() > most_holders) holders.resize(most_holders);
    site.holders = std::move(holders);
}

/// Bytes and blocks that the blocks are, or stand for.
std::pair<uint64_t, uint64_t> sizes_of(std::span<const Block> blocks) {
    if (has_samples(blocks)) {
        const SampledSums sums = sums_of(blocks);
        return {static_cast<uint64_t>(std::llround(sums.size_bytes)), static_cast<uint64_t>(std::llround(sums.blocks))};
    }
    uint64_t size_bytes = 0;
    for (const Block& block : blocks)
        size_bytes += block.size_bytes;
    return {size_bytes, blocks.size()};
}

/// What several parts of a call site have of something, in a row; of one part, its own.
template <typename Item, typename Of>
std::span<const Item> joined(const std::vector<uint32_t>& sites, std::vector<Item>& room, const Of& of) {
    if (sites.size() == 1) return of(sites.front());
    room.clear();
    for (const uint32_t site : sites) {
        const std::span<const Item> own = of(site);
        room.insert(room.end(), own.begin(), own.end());
    }
    return room;
}

}  // namespace

void show_blocks(SiteFigures& site, const std::vector<ScopeDraft::Part>& parts, const BlocksBySite& blocks,
                 const BlockOptions& options) {
    std::vector<uint32_t> living;
    std::vector<SiteHolder> held;
    for (const ScopeDraft::Part& part : parts) {
        if (!part.reading->is_living) continue;
        const uint32_t index = part.reading->site->index;
        living.push_back(index);
        SiteHolder holder{part.pid, part.reading->live_bytes(), part.reading->live_blocks()};
        if (options.older_ns > 0) std::tie(holder.live_bytes, holder.live_blocks) = sizes_of(blocks.blocks_of(index));
        held.push_back(holder);
    }
    keep_most(site, std::move(held));
    std::vector<uint64_t> births_room;
    const auto births_ns = joined(living, births_room, [&](uint32_t index) { return blocks.births_of(index); });
    std::vector<Block> blocks_room;
    const auto shown = joined(living, blocks_room, [&](uint32_t index) { return blocks.blocks_of(index); });
    if (options.older_ns > 0) std::tie(site.live_bytes, site.live_blocks) = sizes_of(shown);
    // A runtime may sample its own heap.
    const bool is_estimate = (options.is_sampled || has_samples(shown)) && !site.is_mapping;
    if (is_estimate) site.error_bytes = sums_of(shown).error_bytes();
    site.ages = is_estimate ? estimated_ages(shown, options.now_ns) : ages_of(births_ns, options.now_ns);
    if (options.keeps_blocks) site.blocks = oldest_first({shown.begin(), shown.end()});
}

std::vector<SiteFigures> inherited_sites(const std::vector<InheritedSite>& inherited,
                                         const std::unordered_map<uint32_t, const SiteReading*>& readings) {
    std::vector<SiteFigures> sites;
    std::unordered_map<SiteKey, size_t, SiteKeyHash> positions;
    for (const InheritedSite& one : inherited) {
        const auto reading = readings.find(one.site);
        const SiteKey key =
            reading == readings.end() ? SiteKey{{0, uint64_t{one.site} + 1}, 0, false} : reading->second->key;
        const auto [position, is_new] = positions.try_emplace(key, sites.size());
        if (is_new) {
            sites.emplace_back();
            sites.back().site = one.site;
            sites.back().row = key.row;
            sites.back().is_inherited = true;
        }
        SiteFigures& figures = sites[position->second];
        if (reading != readings.end()) figures.flags |= reading->second->site->flags;
        figures.live_bytes += one.bytes;
        figures.live_blocks += one.blocks;
    }
    return sites;
}

}  // namespace memtrace
