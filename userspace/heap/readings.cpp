#include "heap/readings.hpp"

#include <algorithm>
#include <unordered_set>

namespace memtrace {
namespace {

/// The counters are read while the program runs: a free that is already in them may be of an allocation that is not.
SiteTotals consistent(SiteTotals totals) {
    totals.freed_bytes = std::min(totals.freed_bytes, totals.allocated_bytes);
    totals.frees = std::min(totals.frees, totals.allocations);
    return totals;
}

/// Address spaces whose blocks are live: those that have not ended, and the last one of a process that has exited.
std::unordered_set<uint32_t> living_owners(const Snapshot& snapshot, std::span<const pid_t> exited) {
    std::unordered_set<uint32_t> living;
    std::unordered_map<pid_t, const AddressSpace*> last;
    for (const AddressSpace& space : snapshot.address_spaces) {
        if (space.ended_ns == 0) living.insert(space.owner);
        const AddressSpace*& latest = last[space.pid];
        if (latest == nullptr || space.first_seen_ns >= latest->first_seen_ns) latest = &space;
    }
    for (const pid_t pid : exited)
        if (const auto found = last.find(pid); found != last.end()) living.insert(found->second->owner);
    return living;
}

SiteKey key_of(const Site& site, bool is_mapping) {
    SiteKey key{site.stack, site.row, is_mapping};
    if ((site.flags & MT_SITE_STACK_UNKNOWN) != 0) key.stack = {};
    // Not known, or not yet: it is nobody else's.
    if (site.stack[0] == 0 && (site.flags & MT_SITE_STACK_UNKNOWN) == 0) key.stack = {0, uint64_t{site.index} + 1};
    return key;
}

}  // namespace

Readings read_sites(const Snapshot& snapshot, const MappingLedger& ledger, std::span<const pid_t> exited) {
    const std::unordered_set<uint32_t> living = living_owners(snapshot, exited);
    Readings readings;
    for (const AddressSpace& space : snapshot.address_spaces) {
        SpaceReading reading{&space, ledger.totals(space.owner)};
        if (!living.contains(space.owner)) reading.end();
        readings.spaces.push_back(reading);
    }
    for (const Site& site : snapshot.sites) {
        const auto mapped = ledger.sites().find(site.index);
        const bool is_mapping = mapped != ledger.sites().end();
        const SiteTotals totals = consistent(is_mapping ? mapped->second : site.totals);
        if (totals.allocations > 0)
            readings.sites.push_back({&site, key_of(site, is_mapping), totals, living.contains(site.owner)});
    }
    return readings;
}

BlocksBySite::BlocksBySite(const Snapshot& snapshot, const MappingLedger& ledger, uint64_t older_ns) {
    const std::vector<Block> mappings = ledger.live_mappings();
    const auto for_each_shown = [&](const auto& visit) {
        for (const std::vector<Block>* source : {&snapshot.blocks, &mappings})
            for (const Block& block : *source)
                if (difference(snapshot.time_ns, block.birth_ns) >= older_ns) visit(block);
    };
    // A counting sort: there can be millions of blocks, and few sites.
    size_t count = 0;
    for_each_shown([&](const Block& block) {
        ++ranges_[block.site].count;
        ++count;
    });
    size_t first = 0;
    for (auto& [site, range] : ranges_) {
        range.first = first;
        first += range.count;
        range.count = 0;
    }
    blocks_.resize(count);
    for_each_shown([&](const Block& block) {
        Range& range = ranges_[block.site];
        blocks_[range.first + range.count++] = block;
    });
}

std::span<const Block> BlocksBySite::of(uint32_t site) const {
    const auto found = ranges_.find(site);
    if (found == ranges_.end()) return {};
    return std::span(blocks_).subspan(found->second.first, found->second.count);
}

}  // namespace memtrace
