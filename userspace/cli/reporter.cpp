#include "cli/reporter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_set>

#include "base/clock.hpp"
#include "cli/collected_objects.hpp"
#include "probes/allocator_table.hpp"
#include "processes/process.hpp"
#include "reports/leak_report.hpp"

namespace memtrace {
namespace {

RowName row_name(const AllocatorTable& table, uint32_t row) {
    const AllocatorFunction& function = table[row];
    // Row 0 is the site that takes blocks whose own site found no room.
    if (is_reserved_row(function)) return {"", "unknown", "heap"};
    return {std::string(function.family), std::string(function.name), std::string(kind_name(function.kind))};
}

SiteOrder site_order(SortOrder order) {
    switch (order) {
        case SortOrder::live:
            return SiteOrder::live;
        case SortOrder::count:
            return SiteOrder::count;
        case SortOrder::growth:
            return SiteOrder::growth;
        case SortOrder::age:
            return SiteOrder::age;
        case SortOrder::rate:
            return SiteOrder::rate;
    }
    return SiteOrder::live;
}

ScopeKind scope_kind(const Options& options) {
    switch (options.report_by()) {
        case ReportBy::process:
            return ScopeKind::process;
        case ReportBy::tree:
            return ScopeKind::tree;
        case ReportBy::exe:
            return ScopeKind::exe;
        case ReportBy::cgroup:
            return ScopeKind::cgroup;
        case ReportBy::all:
            return ScopeKind::all;
    }
    return ScopeKind::process;
}

bool filters_sizes(const Options& options) {
    return options.min_size_bytes > 0 || options.max_size_bytes < UINT64_MAX;
}

/// Path and file: a binary that was replaced is another one.
std::string exe_key(const ProcessInfo& process) {
    return fmt::format("{}\n{}:{}", process.exe, process.exe_device, process.exe_inode);
}

/// What a person looks at first.
int64_t rank_of(const ScopeFigures& figures, SortOrder order) {
    if (order == SortOrder::growth) return figures.heap.growth_bytes + figures.mappings_growth_bytes;
    return static_cast<int64_t>(figures.heap.live_bytes + figures.mappings.live_bytes);
}

void add_to_rest(RestRecord& rest, const ScopeFigures& figures) {
    rest.scopes += 1;
    rest.live_bytes += figures.heap.live_bytes;
    rest.growth_bytes += figures.heap.growth_bytes;
}

}  // namespace

Reporter::Reporter(const Options& options, Tracer& tracer, Output& output)
    : options_(options),
      tracer_(tracer),
      output_(output),
      start_ns_(monotonic_now_ns()),
      history_(start_ns_, scope_kind(options)),
      memory_(tracer, options.shows_resident) {
    update_processes();
}

/// What is known of the targets, and of what has ended since the last tick.
void Reporter::update_processes() {
    std::vector<ProcessIdentity> identities;
    for (const auto& [pid, target] : tracer_.targets())
        identities.push_back({.pid = pid,
                              .parent = target.process.ppid,
                              .exe = exe_key(target.process),
                              .cgroup = target.process.cgroup.value_or(""),
                              .owners = target.owners});
    history_.update(identities);
    const uint64_t elapsed_ns = monotonic_now_ns() - start_ns_;
    memory_.begin_tick();
    for (const auto& [pid, process] : history_.scopes().processes()) {
        const Target& target = tracer_.targets().at(pid);
        const auto [entry, is_new] = processes_.try_emplace(process.number);
        ProcessDescription& known = entry->second;
        if (is_new && is_started_) {
            known.started_ns = elapsed_ns;
            newcomers_.push_back(pid);
        }
        known.ppid = target.process.ppid;
        known.comm = target.process.comm;
        known.exe = target.process.exe;
        known.rss_bytes = tracer_.rss_bytes(pid);
        if (target.is_found_later) known.since_birth = target.since_birth;
        known.window_ns = target.window_ns;
        if (history_.scopes().scopes().at(process.scope).root == pid) roots_[process.scope] = known.comm;
        if (target.exit_code && !known.ended_ns) known.ended_ns = elapsed_ns;
        memory_.add(process.number, pid, process.scope);
    }
    is_started_ = true;
}

/// A process is traced from when its first address space was seen, which is before anybody asks for its figures.
void Reporter::note_starts(const Snapshot& snapshot) {
    if (newcomers_.empty()) return;
    std::unordered_map<pid_t, uint64_t> first_seen_ns;
    for (const AddressSpace& space : snapshot.address_spaces)
        if (history_.scopes().place_of(space)) {
            uint64_t& first = first_seen_ns.try_emplace(space.pid, space.first_seen_ns).first->second;
            first = std::min(first, space.first_seen_ns);
        }
    for (const pid_t pid : newcomers_)
        if (const auto first = first_seen_ns.find(pid); first != first_seen_ns.end())
            processes_[history_.scopes().processes().at(pid).number].started_ns =
                first->second - std::min(first->second, start_ns_);
    newcomers_.clear();
}

/// Forgets what no table shows any more.
void Reporter::forget_ended() {
    std::unordered_set<uint64_t> living;
    for (const auto& [pid, process] : history_.scopes().processes())
        living.insert(process.number);
    std::erase_if(processes_, [&](const auto& entry) { return !living.contains(entry.first); });
    std::erase_if(roots_, [&](const auto& entry) { return !history_.scopes().scopes().contains(entry.first); });
    std::unordered_set<uint32_t> scopes;
    for (const auto& [number, scope] : history_.scopes().scopes())
        scopes.insert(number);
    memory_.forget_ended(living, scopes);
}

std::string Reporter::scope_name(const ScopeFigures& figures) const {
    if (figures.kind == ScopeKind::all) return "all processes";
    if (figures.kind == ScopeKind::cgroup) return figures.key;
    if (figures.kind == ScopeKind::exe) return figures.key.substr(0, figures.key.rfind('\n'));
    const auto root = roots_.find(figures.scope);
    return root == roots_.end() ? "" : root->second;
}

std::vector<std::string> Reporter::allocators_of(const ScopeFigures& figures) const {
    std::set<std::string> families;
    for (const ProcessFigures& process : figures.processes)
        if (const auto target = tracer_.targets().find(process.pid); target != tracer_.targets().end())
            families.insert(target->second.families.begin(), target->second.families.end());
    return {families.begin(), families.end()};
}

/// Reports of a tick, and last reports between two ticks, that a person is shown.
size_t Reporter::most_reports() const {
    const bool is_for_people = options_.format == OutputFormat::text;
    return is_for_people && options_.top > 0 ? options_.top : SIZE_MAX;
}

/// Of the blocks a report shows their ages, unless it is asked for more.
BlockDetail Reporter::block_detail() const {
    return options_.shows_blocks || options_.shows_resident || options_.older_ns > 0 ? BlockDetail::whole
                                                                                     : BlockDetail::births;
}

FigureOptions Reporter::figure_options() const {
    return {.older_ns = options_.older_ns,
            .keeps_blocks = options_.shows_blocks,
            .is_size_filtered = filters_sizes(options_),
            .sampling_mean_bytes = tracer_.sampling_mean(),
            .side_band_lost = tracer_.side_band_lost() + tracer_.owners_not_recorded(),
            .resident_bytes = memory_.resident_bytes()};
}

Result<void> Reporter::report(bool is_final) {
    update_processes();
    const Snapshot snapshot = tracer_.read_snapshot(block_detail());
    note_starts(snapshot);
    std::map<uint64_t, pid_t> living;
    for (const auto& [pid, process] : history_.scopes().processes())
        if (!tracer_.targets().at(pid).exit_code) living.emplace(process.number, pid);
    memory_.read(living, snapshot);
    auto figures = history_.figures(snapshot, tracer_.mapping_ledger(), figure_options());
    ++sequence_;
    if (auto written = write_reports(figures, {snapshot, is_final}); !written) return written;
    history_.advance(snapshot, tracer_.mapping_ledger());
    forget_ended();
    if (auto written = write_rest(ends_not_shown_); !written) return written;
    ends_not_shown_ = {.have_ended = true};
    ends_shown_ = 0;
    return {};
}

Result<void> Reporter::write_reports(Figures& figures, const Moment& moment) {
    std::vector<ScopeFigures*> ordered;
    for (auto& [number, scope] : figures) {
        has_losses_ |= !scope.accuracy.is_complete();
        ordered.push_back(&scope);
    }
    if (ordered.size() > most_reports())
        std::ranges::stable_sort(ordered, std::greater(),
                                 [&](const ScopeFigures* scope) { return rank_of(*scope, options_.sort); });
    RestRecord rest;
    for (size_t index = 0; index < ordered.size(); ++index) {
        if (index >= most_reports()) {
            add_to_rest(rest, *ordered[index]);
            continue;
        }
        if (auto written = write_report(std::move(*ordered[index]), moment); !written) return written;
    }
    return write_rest(rest);
}

Result<void> Reporter::write_report(ScopeFigures figures, const Moment& moment) {
    const LeakReportInput input{.sequence = sequence_,
                                .is_final = moment.is_final,
                                .time_unix_ns = unix_now_ns(),
                                .elapsed_ns = moment.snapshot.time_ns - start_ns_,
                                .snapshot_time_ns = moment.snapshot.time_ns,
                                .scope_name = scope_name(figures),
                                .allocators = allocators_of(figures),
                                .memory = memory_.figures_of(figures, stop_.has_value()),
                                .processes = &processes_,
                                .objects = named_objects(moment.snapshot, figures, tracer_),
                                .before_attach = before_attach(figures, tracer_)};
    const LeakReportOptions report_options{.order = site_order(options_.sort),
                                           .top = options_.top,
                                           .older_ns = options_.older_ns,
                                           .shows_blocks = options_.shows_blocks,
                                           .shows_types = options_.shows_types,
                                           .only_type = options_.only_type,
                                           .min_count = options_.min_count};
    const auto row_names = [&](uint32_t row) { return row_name(tracer_.table(), row); };
    ReportRecord record = build_leak_report(std::move(figures), input, report_options, tracer_, row_names);
    record.overhead = overhead_;
    record.stop = stop_;
    return output_.write(record);
}

Result<void> Reporter::write_rest(RestRecord rest) {
    return rest.scopes == 0 ? Result<void>() : output_.write(rest);
}

Reporter::Ends Reporter::sort_ends(const std::vector<pid_t>& pids) const {
    Ends ends;
    std::unordered_map<uint32_t, uint64_t> living;
    for (const pid_t pid : pids) {
        const Scopes::Scope* scope = history_.scopes().scope_of(pid);
        if (scope == nullptr) continue;
        const uint64_t left = --living.try_emplace(scope->number, scope->living).first->second;
        if (left > 0) {
            ends.others.push_back(pid);
            continue;
        }
        ends.last_of_scopes.push_back(pid);
        ends.scopes.push_back(scope->number);
    }
    return ends;
}

Result<void> Reporter::report_ends(const std::vector<pid_t>& pids) {
    if (pids.empty()) return {};
    update_processes();
    const Ends ends = sort_ends(pids);
    // What goes into the sums of a scope that lives on is in the counters; ages are of those that are reported now.
    const Snapshot snapshot = tracer_.read_snapshot(ends.scopes.empty() ? BlockDetail::none : block_detail());
    note_starts(snapshot);
    const auto keep_stack = [&](uint32_t site) { return tracer_.keep_stack(site); };
    // Those that are not the last ones of their scope are ended when it is reported.
    history_.end_processes(snapshot, tracer_.mapping_ledger(), ends.others, keep_stack);
    if (ends.scopes.empty()) return {};
    memory_.read_nothing();
    FigureOptions options = figure_options();
    options.resident_bytes = nullptr;
    options.exited = ends.last_of_scopes;
    options.scopes = ends.scopes;
    auto figures = history_.figures(snapshot, tracer_.mapping_ledger(), options);
    ++sequence_;
    // More may come into the others.
    const ScopeKind kind = history_.scopes().kind();
    const bool is_final = kind == ScopeKind::process || kind == ScopeKind::tree || !tracer_.may_find_targets();
    auto written = write_ends(figures, {snapshot, is_final});
    history_.advance(snapshot, tracer_.mapping_ledger(), options);
    history_.end_processes(snapshot, tracer_.mapping_ledger(), ends.last_of_scopes, keep_stack);
    return written;
}

Result<void> Reporter::write_ends(Figures& figures, const Moment& moment) {
    for (auto& [number, scope] : figures) {
        has_losses_ |= !scope.accuracy.is_complete();
        if (ends_shown_++ >= most_reports()) {
            add_to_rest(ends_not_shown_, scope);
            continue;
        }
        if (auto written = write_report(std::move(scope), moment); !written) return written;
    }
    return {};
}

void Reporter::release_ended() {
    if (!tracer_.wants_release()) return;
    if (tracer_.has_news_of_exec()) {
        update_processes();
        const auto keep_stack = [&](uint32_t site) { return tracer_.keep_stack(site); };
        tracer_.forget_owners(history_.end_address_spaces(tracer_.read_snapshot(BlockDetail::none),
                                                          tracer_.mapping_ledger(), keep_stack));
    }
    tracer_.release_ended();
}

void Reporter::note_stop(const std::string& reason) {
    stop_ = StopFigures{.elapsed_ns = monotonic_now_ns() - start_ns_, .reason = reason};
}

void Reporter::set_baseline() {
    update_processes();
    const Snapshot snapshot = tracer_.read_snapshot(BlockDetail::none);
    note_starts(snapshot);
    history_.set_baseline(snapshot, tracer_.mapping_ledger());
}

}  // namespace memtrace
