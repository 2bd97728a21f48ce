#include "heap/readings.hpp"

#include <algorithm>
#include <numeric>
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
            readings.sites.push_back(
                {&site, key_of(site, is_mapping), totals, ledger.site_parts(site.index), living.contains(site.owner)});
    }
    return readings;
}

/// A counting sort: there can be millions of blocks, and the numbers of call sites are small.
BlocksBySite::BlocksBySite(const Snapshot& snapshot, const MappingLedger& ledger, uint64_t older_ns) {
    const LiveBlocks mappings(ledger.live_mappings());
    const auto for_each_shown = [&](const auto& visit) {
        for (const LiveBlocks* source : {&snapshot.blocks, &mappings})
            for (size_t index = 0; index < source->size(); ++index)
                if (older_ns == 0 || difference(snapshot.time_ns, source->births_ns()[index]) >= older_ns)
                    visit(*source, index, source->sites()[index]);
    };
    uint32_t last_site = 0;
    for (const LiveBlocks* source : {&snapshot.blocks, &mappings})
        for (const uint32_t site : source->sites())
            last_site = std::max(last_site, site);
    firsts_.resize(last_site + size_t{2});
    for_each_shown([&](const LiveBlocks&, size_t, uint32_t site) { ++firsts_[site + size_t{1}]; });
    std::partial_sum(firsts_.begin(), firsts_.end(), firsts_.begin());
    births_ns_.resize(firsts_.back());
    if (snapshot.blocks.are_whole()) blocks_.resize(firsts_.back());
    std::vector<size_t> next = firsts_;
    for_each_shown([&](const LiveBlocks& source, size_t index, uint32_t site) {
        const size_t place = next[site]++;
        births_ns_[place] = source.births_ns()[index];
        if (!blocks_.empty()) blocks_[place] = source[index];
    });
}

}  // namespace memtrace
