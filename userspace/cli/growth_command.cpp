#include "cli/growth_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "cli/ending_signals.hpp"
#include "cli/output.hpp"
#include "heap/growth_series.hpp"
#include "processes/memory_use.hpp"
#include "processes/process.hpp"
#include "processes/resident_pages.hpp"
#include "runtimes/glibc_malloc.hpp"
#include "runtimes/go_process.hpp"

namespace memtrace {
namespace {

/// One process, from the first look on.
class WatchedProcess {
  public:
    explicit WatchedProcess(pid_t pid) : pid_(pid) {}

    pid_t pid() const { return pid_; }
    /// Errors: no_such_target, not_privileged.
    Result<GrowthRecord> look();

  private:
    Result<MemoryByUse> read();
    std::vector<AddressRange> arena_ranges() const;
    GrowthEntry entry_of(size_t series, const UseFigures& now, std::string_view use) const;

    pid_t pid_;
    uint64_t first_ns_ = 0;
    uint64_t looks_ = 0;
    bool is_go_ = false;
    std::optional<GlibcMalloc> malloc_;
    MemoryByUse first_{};
    std::array<GrowthSeries, memory_uses + 1> series_;  // the last one is that of all
};

std::vector<AddressRange> WatchedProcess::arena_ranges() const {
    std::vector<AddressRange> ranges;
    const auto arenas = malloc_ ? malloc_->arenas() : std::nullopt;
    if (!arenas) return ranges;
    for (const uint64_t arena : *arenas) {
        const auto regions = malloc_->regions(arena);
        if (!regions) continue;
        for (const GlibcRegion& region : *regions)
            if (region.heap != 0) ranges.push_back({region.heap, region.end});
    }
    return ranges;
}

Result<MemoryByUse> WatchedProcess::read() {
    if (!malloc_)
        if (auto malloc = GlibcMalloc::find(pid_)) malloc_.emplace(std::move(*malloc));
    auto pages = ResidentPages::open(pid_);
    if (!pages) return std::move(pages).error();
    const std::vector<AddressRange> arenas = arena_ranges();
    const std::vector<uint64_t> stack_pointers = read_stack_pointers(pid_);
    const auto mappings = read_resident_mappings(pid_);
    if (!mappings) return mappings.error();
    return split_by_use(*mappings, {.stack_pointers = stack_pointers, .arenas = arenas, .is_go = is_go_},
                        [&](AddressRange range) { return pages->bytes(range.begin, range.end); });
}

GrowthEntry WatchedProcess::entry_of(size_t series, const UseFigures& now, std::string_view use) const {
    const UseFigures then = series < memory_uses ? first_[series] : sum_of(first_);
    const SeriesTrend trend = series_[series].trend();
    GrowthEntry entry;
    entry.use = use;
    entry.rss_bytes = now.rss_bytes;
    entry.rss_growth_bytes = static_cast<int64_t>(now.rss_bytes - then.rss_bytes);
    entry.mapped_bytes = now.mapped_bytes;
    entry.mapped_growth_bytes = static_cast<int64_t>(now.mapped_bytes - then.mapped_bytes);
    entry.slope_bytes_per_second = trend.slope_bytes_per_second;
    entry.pattern = name_of(trend.pattern);
    return entry;
}

Result<GrowthRecord> WatchedProcess::look() {
    if (looks_ == 0) is_go_ = is_go_process(pid_);
    const auto process = read_process(pid_);
    if (!process) return process.error();
    const auto memory = read();
    if (!memory) return memory.error();
    const uint64_t now_ns = monotonic_now_ns();
    if (looks_++ == 0) {
        first_ = *memory;
        first_ns_ = now_ns;
    }
    for (size_t use = 0; use < memory_uses; ++use)
        series_[use].add(now_ns, (*memory)[use].rss_bytes);
    const UseFigures sum = sum_of(*memory);
    series_.back().add(now_ns, sum.rss_bytes);
    GrowthRecord record;
    record.sequence = looks_;
    record.time_unix_ns = unix_now_ns();
    record.elapsed_ns = now_ns - first_ns_;
    record.window_ns = series_.back().trend().window_ns;
    record.pid = pid_;
    record.comm = process->comm;
    record.has_glibc = malloc_.has_value();
    record.all = entry_of(memory_uses, sum, "");
    for (size_t use = 0; use < memory_uses; ++use)
        record.uses.push_back(entry_of(use, (*memory)[use], name_of(static_cast<MemoryUse>(use))));
    return record;
}

/// False when no process is left.
Result<bool> write_all(std::vector<WatchedProcess>& processes, bool is_first, Output& output) {
    for (auto process = processes.begin(); process != processes.end();) {
        auto record = process->look();
        const bool has_ended = !record && !read_mapped_bytes(process->pid());
        if (!record && (is_first || !has_ended)) return std::move(record).error();
        if (!record) {
            process = processes.erase(process);
            continue;
        }
        if (const Result<void> written = output.write(*record); !written) return written.error();
        ++process;
    }
    return !processes.empty();
}

Result<void> run(const Options& options, Output& output) {
    std::vector<WatchedProcess> processes(options.pids.begin(), options.pids.end());
    const uint64_t count = options.count.value_or(UINT64_MAX - 1) + 1;  // the first look is no report of growth
    for (uint64_t looks = 0; looks < count; ++looks) {
        if (looks > 0 && !wait_without_signal(options.interval_ns)) return {};
        const auto goes_on = write_all(processes, looks == 0, output);
        if (!goes_on) return goes_on.error();
        if (!*goes_on) return {};
    }
    return {};
}

/// Whether the other options go with --growth.
Result<void> check_growth_options(const Options& options) {
    if (options.pids.empty() || options.has_future_targets() || !options.command.empty())
        return Error{"--growth", "is of running processes, by -p PID", "write memtrace -p PID --growth",
                     ExitStatus::usage};
    return {};
}

}  // namespace

int run_growth_command(const Options& options) {
    if (const Result<void> right = check_growth_options(options); !right) {
        log_error(right.error());
        return static_cast<int>(right.error().status);
    }
    hold_ending_signals();
    return write_to_output(options, [&](Output& output) { return run(options, output); });
}

}  // namespace memtrace
