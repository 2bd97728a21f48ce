#include "reports/types.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace memtrace {
namespace {

uint64_t rank_of(const TypeEntry& entry, SiteOrder order) {
    if (order == SiteOrder::count) return entry.live_blocks.value_or(0);
    return order == SiteOrder::rate ? entry.allocated_bytes : entry.live_bytes.value_or(0);
}

void add(TypeEntry& entry, const NamedObjects& objects) {
    entry.allocations += objects.allocations;
    entry.allocated_bytes += objects.allocations * objects.size_bytes;
    if (!objects.live) return;
    entry.live_blocks = entry.live_blocks.value_or(0) + *objects.live;
    entry.live_bytes = entry.live_bytes.value_or(0) + *objects.live * objects.size_bytes;
}

}  // namespace

std::vector<TypeEntry> type_entries(std::span<const NamedObjects> objects, SiteOrder order, uint64_t min_count,
                                    size_t top) {
    std::map<std::string_view, TypeEntry> by_name;
    for (const NamedObjects& object : objects) {
        TypeEntry& entry = by_name[object.type];
        entry.type = object.type;
        add(entry, object);
    }
    std::vector<TypeEntry> entries;
    for (auto& [name, entry] : by_name)
        if (entry.allocations >= min_count) entries.push_back(std::move(entry));
    // Names break ties, as they are sorted already.
    std::ranges::stable_sort(entries, std::greater(), [order](const TypeEntry& entry) {
        return std::tuple(rank_of(entry, order), entry.live_bytes.value_or(0), entry.allocated_bytes);
    });
    if (top != 0 && entries.size() > top) entries.resize(top);
    return entries;
}

std::unordered_map<uint32_t, std::string> types_of_sites(std::span<const NamedObjects> objects) {
    std::map<std::pair<uint32_t, std::string_view>, uint64_t> counts;
    for (const NamedObjects& object : objects)
        counts[{object.site, object.type}] += object.allocations;
    std::unordered_map<uint32_t, std::string> types;
    std::unordered_map<uint32_t, uint64_t> most;
    for (const auto& [key, count] : counts) {
        if (count <= most[key.first]) continue;
        most[key.first] = count;
        types[key.first] = std::string(key.second);
    }
    return types;
}

void keep_type(std::vector<SiteFigures>& sites, std::span<const NamedObjects> objects, const std::string& type) {
    std::unordered_map<uint32_t, TypeEntry> by_site;
    for (const NamedObjects& object : objects)
        if (object.type == type) add(by_site[object.site], object);
    std::erase_if(sites, [&](const SiteFigures& site) { return !by_site.contains(site.site); });
    for (SiteFigures& site : sites) {
        const TypeEntry& entry = by_site.at(site.site);
        site.live_blocks = std::min(entry.live_blocks.value_or(site.live_blocks), entry.allocations);
        site.live_bytes = std::min(entry.live_bytes.value_or(site.live_bytes), entry.allocated_bytes);
        site.totals = {.allocated_bytes = entry.allocated_bytes,
                       .allocations = entry.allocations,
                       .freed_bytes = entry.allocated_bytes - site.live_bytes,
                       .frees = entry.allocations - site.live_blocks};
    }
}

}  // namespace memtrace
