#include "heap/history.hpp"

#include <algorithm>
#include <functional>
#include <span>
#include <tuple>
#include <unordered_set>

namespace memtrace {
namespace {

uint64_t difference(uint64_t larger, uint64_t smaller) {
    return larger > smaller ? larger - smaller : 0;
}

int64_t signed_difference(uint64_t now, uint64_t before) {
    return static_cast<int64_t>(now - before);
}

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

/// Calls `visit(site, totals, is_mapping)` for every call site that was ever used.
void for_each_used_site(const Snapshot& snapshot, const MappingLedger& ledger,
                        const std::function<void(const Site&, const SiteTotals&, bool)>& visit) {
    for (const Site& site : snapshot.sites) {
        const auto mapped = ledger.sites().find(site.index);
        const bool is_mapping = mapped != ledger.sites().end();
        const SiteTotals totals = consistent(is_mapping ? mapped->second : site.totals);
        if (totals.allocations > 0) visit(site, totals, is_mapping);
    }
}

/// Live blocks and live mappings that are old enough, by call site.
class BlocksBySite {
  public:
    BlocksBySite(const Snapshot& snapshot, const MappingLedger& ledger, uint64_t older_ns) {
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

    std::span<const Block> of(uint32_t site) const {
        const auto found = ranges_.find(site);
        if (found == ranges_.end()) return {};
        return std::span(blocks_).subspan(found->second.first, found->second.count);
    }

  private:
    struct Range {
        size_t first = 0;
        size_t count = 0;
    };
    std::vector<Block> blocks_;
    std::unordered_map<uint32_t, Range> ranges_;
};

std::optional<Ages> ages_of(std::span<const Block> blocks, uint64_t now_ns) {
    if (blocks.empty()) return std::nullopt;
    std::vector<uint64_t> ages;
    ages.reserve(blocks.size());
    for (const Block& block : blocks)
        ages.push_back(difference(now_ns, block.birth_ns));
    const auto median = ages.begin() + static_cast<std::ptrdiff_t>((ages.size() - 1) / 2);
    std::nth_element(ages.begin(), median, ages.end());
    return Ages{*std::min_element(ages.begin(), median + 1), *median, *std::max_element(median, ages.end())};
}

/// Flags of stacks that ended before the thread's start, but for those that the kernel side counts itself.
constexpr uint32_t cut_short =
    MT_SITE_STACK_NO_CFI | MT_SITE_STACK_UNREADABLE | MT_SITE_STACK_UNSUPPORTED | MT_SITE_STACK_NO_PROGRESS;

std::vector<Block> oldest_first(std::span<const Block> blocks) {
    std::vector<Block> ordered(blocks.begin(), blocks.end());
    std::sort(ordered.begin(), ordered.end(), [](const Block& left, const Block& right) {
        return std::tie(left.birth_ns, left.address) < std::tie(right.birth_ns, right.address);
    });
    return ordered;
}

void show_only(SiteFigures& site, std::span<const Block> blocks) {
    site.live_bytes = 0;
    site.live_blocks = blocks.size();
    for (const Block& block : blocks)
        site.live_bytes += block.size_bytes;
}

void add_address_space(ProcessFigures& process, const AddressSpace& space, MappingTotals mappings, bool is_living) {
    process.pid = space.pid;
    process.accuracy += accuracy_of(space);
    process.accuracy.unknown_frees += mappings.unknown_unmaps;
    if (!is_living) {
        mappings.unmapped_bytes += mappings.live_bytes;
        mappings.live_bytes = 0;
        mappings.live_count = 0;
    }
    process.mappings += mappings;
}

}  // namespace

std::unordered_map<pid_t, ProcessFigures> History::figures(const Snapshot& snapshot, const MappingLedger& ledger,
                                                           const FigureOptions& options) const {
    const std::unordered_set<uint32_t> living = living_owners(snapshot, options.exited);
    const BlocksBySite blocks(snapshot, ledger, options.older_ns);
    std::unordered_map<pid_t, ProcessFigures> processes;
    std::unordered_map<uint32_t, ProcessFigures*> by_owner;
    for (const AddressSpace& space : snapshot.address_spaces) {
        ProcessFigures& process = processes[space.pid];
        by_owner[space.owner] = &process;
        add_address_space(process, space, ledger.totals(space.owner), living.contains(space.owner));
    }
    for (const pid_t pid : options.processes)
        processes[pid].pid = pid;
    for_each_used_site(snapshot, ledger, [&](const Site& site, const SiteTotals& totals, bool is_mapping) {
        const auto process = by_owner.find(site.owner);
        if (process == by_owner.end()) return;
        const bool is_living = living.contains(site.owner);
        SiteFigures figures = site_figures(site, totals, is_mapping, is_living);
        add_to_sums(*process->second, figures);
        if ((site.flags & cut_short) != 0) process->second->accuracy.stacks_truncated += totals.allocations;
        const std::span<const Block> shown = is_living ? blocks.of(site.index) : std::span<const Block>();
        if (options.older_ns > 0 && shown.empty()) return;
        if (options.older_ns > 0) show_only(figures, shown);
        figures.ages = ages_of(shown, snapshot.time_ns);
        if (options.keeps_blocks) figures.blocks = oldest_first(shown);
        process->second->sites.push_back(std::move(figures));
    });
    for (auto& [pid, process] : processes)
        finish(process, snapshot, options);
    return processes;
}

SiteFigures History::site_figures(const Site& site, const SiteTotals& totals, bool is_mapping, bool is_living) const {
    SiteFigures figures;
    figures.site = site.index;
    figures.row = site.row;
    figures.flags = site.flags;
    figures.is_mapping = is_mapping;
    figures.totals = totals;
    figures.live_bytes = is_living ? totals.live_bytes() : 0;
    figures.live_blocks = is_living ? totals.live_blocks() : 0;
    const auto previous = previous_.find(site.index);
    const auto baseline = baseline_.find(site.index);
    const KnownSite known = previous == previous_.end() ? KnownSite{} : previous->second;
    const uint64_t baseline_bytes = baseline == baseline_.end() ? 0 : baseline->second.live_bytes;
    figures.growth_bytes = signed_difference(figures.live_bytes, known.live_bytes);
    figures.growth_since_baseline_bytes = signed_difference(figures.live_bytes, baseline_bytes);
    figures.allocated_since_previous_bytes = difference(totals.allocated_bytes, known.totals.allocated_bytes);
    return figures;
}

void History::add_to_sums(ProcessFigures& process, const SiteFigures& site) const {
    if (site.is_mapping) {
        process.mappings_growth_bytes += site.growth_bytes;
        return;
    }
    HeapFigures& heap = process.heap;
    heap.totals += site.totals;
    heap.live_bytes += site.live_bytes;
    heap.live_blocks += site.live_blocks;
    heap.ended_bytes += site.totals.live_bytes() - site.live_bytes;
    heap.ended_blocks += site.totals.live_blocks() - site.live_blocks;
    heap.growth_bytes += site.growth_bytes;
    heap.growth_since_baseline_bytes += site.growth_since_baseline_bytes;
    const auto previous = previous_.find(site.site);
    const SiteTotals before = previous == previous_.end() ? SiteTotals{} : previous->second.totals;
    process.interval.allocated_bytes += difference(site.totals.allocated_bytes, before.allocated_bytes);
    process.interval.allocations += difference(site.totals.allocations, before.allocations);
    process.interval.freed_bytes += difference(site.totals.freed_bytes, before.freed_bytes);
    process.interval.frees += difference(site.totals.frees, before.frees);
}

void History::finish(ProcessFigures& process, const Snapshot& snapshot, const FigureOptions& options) const {
    const auto peak = peaks_.find(process.pid);
    process.heap.peak_live_bytes = std::max(process.heap.live_bytes, peak == peaks_.end() ? 0 : peak->second);
    process.interval.duration_ns = difference(snapshot.time_ns, previous_time_ns_);
    process.has_baseline = has_baseline_;
    process.accuracy.is_size_filtered = options.is_size_filtered;
    process.accuracy.events_side_band_lost += options.side_band_lost;
}

History::KnownSites History::known_sites(const Snapshot& snapshot, const MappingLedger& ledger) {
    const std::unordered_set<uint32_t> living = living_owners(snapshot, {});
    KnownSites known;
    for_each_used_site(snapshot, ledger, [&](const Site& site, const SiteTotals& totals, bool) {
        known[site.index] = {living.contains(site.owner) ? totals.live_bytes() : 0, totals};
    });
    return known;
}

void History::advance(const Snapshot& snapshot, const MappingLedger& ledger) {
    previous_ = known_sites(snapshot, ledger);
    previous_time_ns_ = snapshot.time_ns;
    observe(snapshot);
}

void History::set_baseline(const Snapshot& snapshot, const MappingLedger& ledger) {
    baseline_ = known_sites(snapshot, ledger);
    has_baseline_ = true;
    observe(snapshot);
}

void History::observe(const Snapshot& snapshot) {
    const std::unordered_set<uint32_t> living = living_owners(snapshot, {});
    std::unordered_map<uint32_t, pid_t> pid_of;
    for (const AddressSpace& space : snapshot.address_spaces)
        pid_of[space.owner] = space.pid;
    std::unordered_map<pid_t, uint64_t> live;
    for (const Site& site : snapshot.sites)
        if (living.contains(site.owner) && pid_of.contains(site.owner))
            live[pid_of[site.owner]] += consistent(site.totals).live_bytes();
    for (const auto& [pid, live_bytes] : live)
        peaks_[pid] = std::max(peaks_[pid], live_bytes);
}

std::optional<int64_t> History::rss_growth(pid_t pid, uint64_t rss_bytes) const {
    const auto previous = previous_rss_.find(pid);
    if (previous == previous_rss_.end()) return std::nullopt;
    return signed_difference(rss_bytes, previous->second);
}

void History::forget(pid_t pid) {
    peaks_.erase(pid);
    previous_rss_.erase(pid);
}

}  // namespace memtrace
