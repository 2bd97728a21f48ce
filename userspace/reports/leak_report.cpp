#include "reports/leak_report.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <utility>

namespace memtrace {
namespace {

std::vector<BlockEntry> block_entries(const std::vector<Block>& blocks, uint64_t now_ns) {
    std::vector<BlockEntry> entries;
    entries.reserve(blocks.size());
    for (const Block& block : blocks)
        entries.push_back({block.address, block.size_bytes, now_ns - std::min(now_ns, block.birth_ns)});
    return entries;
}

/// What the kernel side noted of the walk, else what is known of the names.
std::optional<std::string> stack_error(const SiteFigures& figures, SiteNames& names) {
    constexpr std::array reasons = {
        std::pair{MT_SITE_STACK_UNKNOWN, "stack not recorded"},
        std::pair{MT_SITE_STACK_TRUNCATED, "more frames than --max-stack"},
        std::pair{MT_SITE_STACK_NOT_SENT, "cut where an unwind table was not there yet"},
        std::pair{MT_SITE_STACK_NO_CFI, "code without unwind information and without frame pointers"},
        std::pair{MT_SITE_STACK_UNREADABLE, "stack memory could not be read"},
        std::pair{MT_SITE_STACK_UNSUPPORTED, "unwind information of an unsupported kind"},
        std::pair{MT_SITE_STACK_NO_PROGRESS, "a frame that is not above the one before"},
    };
    for (const auto& [flag, reason] : reasons)
        if (figures.flags & static_cast<uint32_t>(flag)) return reason;
    return names.stack_error(figures.site);
}

SiteEntry site_entry(const SiteFigures& figures, SiteNames& names, const RowNames& row_names) {
    const RowName row = row_names(figures.row);
    SiteEntry entry;
    entry.kind = figures.is_mapping ? "mapping" : row.kind;
    entry.allocator = row.allocator;
    entry.function = row.function;
    entry.id = names.site_id(figures.site, entry.kind, entry.function);
    entry.is_inherited = figures.is_inherited;
    entry.live_bytes = figures.live_bytes;
    entry.live_blocks = figures.live_blocks;
    entry.allocated_bytes = figures.totals.allocated_bytes;
    entry.allocations = figures.totals.allocations;
    entry.parts = figures.parts;
    entry.resident_bytes = figures.resident_bytes;
    entry.growth_bytes = figures.growth_bytes;
    entry.growth_since_baseline_bytes = figures.growth_since_baseline_bytes;
    entry.allocated_since_previous_bytes = figures.allocated_since_previous_bytes;
    entry.ages = figures.ages;
    entry.error_bytes = figures.error_bytes;
    entry.stack_error = stack_error(figures, names);
    entry.frames = names.frames(figures.site);
    entry.holders = figures.holders;
    entry.holders_total = figures.holders_total;
    return entry;
}

/// Which of the mapped allocators is in use is told by what was called.
std::vector<AllocatorEntry> allocator_entries(const std::vector<SiteFigures>& sites,
                                              const std::vector<std::string>& mapped, const RowNames& row_names) {
    std::vector<AllocatorEntry> entries;
    for (const std::string& name : mapped)
        entries.push_back({.name = name});
    for (const SiteFigures& site : sites) {
        if (site.is_mapping || site.is_inherited) continue;
        const std::string name = row_names(site.row).allocator;
        auto entry = std::ranges::find(entries, name, &AllocatorEntry::name);
        if (entry == entries.end()) entry = entries.insert(entries.end(), {.name = name});
        entry->allocations += site.totals.allocations;
        entry->allocated_bytes += site.totals.allocated_bytes;
    }
    std::erase_if(entries, [](const AllocatorEntry& entry) { return entry.name.empty(); });
    std::ranges::stable_sort(entries, std::greater(), &AllocatorEntry::allocations);
    return entries;
}

ReportScope scope_of(const ScopeFigures& figures, const std::string& name) {
    ReportScope scope;
    scope.by = scope_kind_name(figures.kind);
    scope.name = name;
    if (figures.root != 0) scope.pid = figures.root;
    for (const ProcessFigures& process : figures.processes)
        if (!process.has_ended) scope.pids.push_back(process.pid);
    return scope;
}

std::vector<ProcessEntry> process_entries(const ScopeFigures& figures, const ProcessDescriptions& descriptions) {
    std::vector<ProcessEntry> entries;
    if (figures.kind == ScopeKind::process) return entries;
    for (const ProcessFigures& process : figures.processes) {
        const auto found = descriptions.find(process.number);
        const ProcessDescription known = found == descriptions.end() ? ProcessDescription{} : found->second;
        entries.push_back({.ppid = known.ppid,
                           .comm = known.comm,
                           .exe = known.exe,
                           .since_birth = known.since_birth,
                           .window_ns = known.window_ns,
                           .started_ns = known.started_ns,
                           .ended_ns = known.ended_ns,
                           .rss_bytes = known.rss_bytes,
                           .figures = process});
    }
    return entries;
}

/// The call sites that are asked for, in their order.
std::vector<SiteEntry> shown_sites(std::vector<SiteFigures> sites, const LeakReportInput& input,
                                   const LeakReportOptions& options, SiteNames& names, const RowNames& row_names) {
    if (!options.only_type.empty()) keep_type(sites, input.objects, options.only_type);
    if (options.min_count > 0)
        std::erase_if(sites, [&](const SiteFigures& site) { return site.totals.allocations < options.min_count; });
    const auto types = types_of_sites(input.objects);
    order_sites(sites, options.order);
    keep_top_sites(sites, options.top);
    std::vector<SiteEntry> entries;
    for (const SiteFigures& site : sites) {
        entries.push_back(site_entry(site, names, row_names));
        if (const auto type = types.find(site.site); type != types.end()) entries.back().type = type->second;
        if (!options.only_type.empty()) entries.back().type = options.only_type;
        if (options.shows_blocks) entries.back().blocks = block_entries(site.blocks, input.snapshot_time_ns);
    }
    return entries;
}

}  // namespace

std::string_view scope_kind_name(ScopeKind kind) {
    switch (kind) {
        case ScopeKind::process:
            return "process";
        case ScopeKind::tree:
            return "tree";
        case ScopeKind::exe:
            return "exe";
        case ScopeKind::cgroup:
            return "cgroup";
        case ScopeKind::all:
            return "all";
    }
    return "process";
}

void add(std::optional<BeforeAttachRecord>& all, BeforeAttachRecord one) {
    if (!all) {
        all = std::move(one);
        return;
    }
    all->error_bytes =
        static_cast<uint64_t>(std::hypot(static_cast<double>(all->error_bytes), static_cast<double>(one.error_bytes)));
    all->live_bytes += one.live_bytes;
    all->live_blocks += one.live_blocks;
    all->sites_total += one.sites_total;
    std::ranges::move(one.sites, std::back_inserter(all->sites));
    std::ranges::stable_sort(all->sites, std::greater(), &CensusSite::live_bytes);
}

ReportRecord build_leak_report(ScopeFigures figures, const LeakReportInput& input, const LeakReportOptions& options,
                               SiteNames& names, const RowNames& row_names) {
    ReportRecord record;
    record.sequence = input.sequence;
    record.is_final = input.is_final;
    record.time_unix_ns = input.time_unix_ns;
    record.elapsed_ns = input.elapsed_ns;
    record.scope = scope_of(figures, input.scope_name);
    if (input.processes) record.processes = process_entries(figures, *input.processes);
    record.ended_processes = figures.ended_processes;
    record.top = options.top;
    record.heap = figures.heap;
    record.mappings = figures.mappings;
    record.memory = input.memory;
    record.accuracy = figures.accuracy;
    record.mappings_growth_bytes = figures.mappings_growth_bytes;
    record.interval = figures.interval;
    record.has_baseline = figures.has_baseline;
    record.order = options.order;
    record.older_ns = options.older_ns;
    record.sites_total = figures.sites.size();
    record.heap_sites_total = static_cast<uint64_t>(
        std::count_if(figures.sites.begin(), figures.sites.end(), [](const auto& site) { return !site.is_mapping; }));
    record.allocators = allocator_entries(figures.sites, input.allocators, row_names);
    record.before_attach = input.before_attach;
    if (record.before_attach && options.top != 0 && record.before_attach->sites.size() > options.top)
        record.before_attach->sites.resize(options.top);
    if (options.shows_types) record.types = type_entries(input.objects, options.order, options.min_count, options.top);
    record.sites = shown_sites(std::move(figures.sites), input, options, names, row_names);
    return record;
}

}  // namespace memtrace
