#include "cli/reporter.hpp"

#include <ctime>

#include "probes/allocator_table.hpp"
#include "reports/leak_report.hpp"

namespace memtrace {
namespace {

int64_t now_ns(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

RowName row_name(const AllocatorTable& table, uint32_t row) {
    const AllocatorFunction& function = table[row];
    // Row 0 is the site that takes blocks whose own site found no room.
    if (is_reserved_row(function)) return {"", "unknown"};
    return {std::string(function.family), std::string(function.name)};
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

bool filters_sizes(const Options& options) {
    return options.min_size_bytes > 0 || options.max_size_bytes < UINT64_MAX;
}

}  // namespace

Reporter::Reporter(const Options& options, Tracer& tracer, Output& output)
    : options_(options),
      tracer_(tracer),
      output_(output),
      start_ns_(static_cast<uint64_t>(now_ns(CLOCK_MONOTONIC))),
      history_(start_ns_) {
    for (const auto& [pid, target] : tracer_.targets())
        if (const auto rss = tracer_.rss_bytes(pid)) history_.note_rss(pid, *rss);
}

MemoryFigures Reporter::memory_of(pid_t pid) {
    MemoryFigures memory;
    memory.rss_bytes = tracer_.rss_bytes(pid);
    if (memory.rss_bytes) memory.rss_growth_bytes = history_.rss_growth(pid, *memory.rss_bytes);
    return memory;
}

Result<void> Reporter::report(bool is_final) {
    std::vector<pid_t> pids;
    for (const auto& [pid, target] : tracer_.targets())
        pids.push_back(pid);
    return write_reports(pids, is_final, false);
}

Result<void> Reporter::report_end(const std::vector<pid_t>& pids) {
    auto written = write_reports(pids, true, true);
    for (const pid_t pid : pids)
        history_.forget(pid);
    return written;
}

Result<void> Reporter::write_reports(const std::vector<pid_t>& pids, bool is_final, bool has_ended) {
    const Snapshot snapshot = tracer_.read_snapshot();
    FigureOptions figure_options{.older_ns = options_.older_ns,
                                 .keeps_blocks = options_.shows_blocks,
                                 .is_size_filtered = filters_sizes(options_),
                                 .side_band_lost = tracer_.side_band_lost() + tracer_.owners_not_recorded(),
                                 .exited = {},
                                 .processes = pids};
    if (has_ended) figure_options.exited = pids;
    auto figures = history_.figures(snapshot, tracer_.mapping_ledger(), figure_options);
    const auto row_names = [&](uint32_t row) { return row_name(tracer_.table(), row); };
    ++sequence_;
    for (const pid_t pid : pids) {
        const Target& target = tracer_.targets().at(pid);
        ProcessFigures process = std::move(figures.at(pid));
        const LeakReportInput input{.sequence = sequence_,
                                    .is_final = is_final,
                                    .time_unix_ns = now_ns(CLOCK_REALTIME),
                                    .elapsed_ns = snapshot.time_ns - start_ns_,
                                    .snapshot_time_ns = snapshot.time_ns,
                                    .process_name = target.process.comm,
                                    .allocators = {target.families.begin(), target.families.end()},
                                    .memory = memory_of(pid)};
        const LeakReportOptions report_options{.order = site_order(options_.sort),
                                               .top = options_.top,
                                               .older_ns = options_.older_ns,
                                               .shows_blocks = options_.shows_blocks};
        const ReportRecord record = build_leak_report(std::move(process), input, report_options, tracer_, row_names);
        has_losses_ |= !record.accuracy.is_complete();
        if (auto written = output_.write(record); !written) return written;
    }
    // The end of one process is no tick of the others.
    if (!has_ended) history_.advance(snapshot, tracer_.mapping_ledger());
    return {};
}

void Reporter::set_baseline() {
    history_.set_baseline(tracer_.read_snapshot(), tracer_.mapping_ledger());
}

}  // namespace memtrace
