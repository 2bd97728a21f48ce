#include "cli/memory_reporter.hpp"

#include <algorithm>
#include <array>

#include "base/clock.hpp"
#include "processes/process.hpp"

namespace memtrace {
namespace {

/// Where there are many processes their memory would take longer to read than the report may.
constexpr uint64_t longest_ns = 100'000'000;

/// Growth of each kind.
using Changes = std::array<int64_t, memory_kinds>;

Changes changes(const std::array<uint64_t, memory_kinds>& now, const std::array<uint64_t, memory_kinds>& earlier) {
    Changes result{};
    for (size_t kind = 0; kind < memory_kinds; ++kind)
        result[kind] = static_cast<int64_t>(now[kind] - earlier[kind]);
    return result;
}

GrowthFigures growth_figures(const Changes& change, int64_t heap_live_bytes) {
    GrowthFigures growth;
    for (const int64_t one : change)
        growth.total_bytes += one;
    growth.heap_live_bytes = heap_live_bytes;
    growth.allocator_retained_bytes = change[index_of(MemoryKind::heap)] - heap_live_bytes;
    growth.mappings_bytes = change[index_of(MemoryKind::mappings)];
    growth.stacks_bytes = change[index_of(MemoryKind::stacks)];
    growth.files_bytes = change[index_of(MemoryKind::files)];
    growth.shared_bytes = change[index_of(MemoryKind::shared)];
    growth.earlier_bytes = change[index_of(MemoryKind::earlier)];
    growth.unexplained_bytes = growth.total_bytes - growth.heap_live_bytes - *growth.allocator_retained_bytes -
                               growth.mappings_bytes - growth.stacks_bytes - growth.files_bytes - growth.shared_bytes -
                               growth.earlier_bytes;
    return growth;
}

}  // namespace

void MemoryReporter::begin_tick() {
    new_scopes_.clear();
    deadline_ns_ = monotonic_now_ns() + longest_ns;
}

void MemoryReporter::add(uint64_t number, pid_t pid, uint32_t scope) {
    if (!processes_.insert(number).second) return;
    if (!starts_.contains(scope)) new_scopes_.insert(scope);
    Start& start = starts_[scope];
    if (new_scopes_.contains(scope)) {
        start.processes.push_back(number);
        start.rss_bytes += tracer_.rss_bytes(pid).value_or(0);
    }
    if (!has_time_limit_ || monotonic_now_ns() < deadline_ns_) watch_.begin(number, pid);
}

void MemoryReporter::read(const std::map<uint64_t, pid_t>& living, const Snapshot& snapshot) {
    memory_.clear();
    watch_.begin_report();
    const uint64_t deadline_ns = monotonic_now_ns() + longest_ns;
    for (const auto& [number, pid] : living) {
        if (has_time_limit_ && monotonic_now_ns() > deadline_ns) return;
        if (auto memory = watch_.read(number, snapshot)) memory_.emplace(number, *memory);
    }
}

/// Of several processes shared pages must not count twice: then the kernel's shares add up.
std::optional<GrowthFigures> MemoryReporter::growth_of(const ScopeFigures& figures) const {
    const auto start = starts_.find(figures.scope);
    if (start == starts_.end()) return std::nullopt;
    MemoryByKind now;
    MemoryByKind earlier;
    uint64_t untouched_bytes = 0;
    for (const ProcessFigures& process : figures.processes) {
        if (process.has_ended) continue;
        const auto memory = memory_.find(process.number);
        if (memory == memory_.end()) return std::nullopt;
        now += memory->second.now;
        untouched_bytes += memory->second.untouched_bytes;
    }
    for (const uint64_t number : start->second.processes) {
        const auto then = watch_.earlier(number);
        if (!then) return std::nullopt;
        earlier += *then;
    }
    uint64_t live_bytes = figures.heap.live_bytes;
    // Of a child alone they are in what it had when it was born.
    if (figures.kind != ScopeKind::process) live_bytes += figures.heap.inherited_bytes;
    const auto resident_bytes = static_cast<int64_t>(live_bytes - std::min(live_bytes, untouched_bytes));
    const bool is_shared_out = figures.kind != ScopeKind::process;
    GrowthFigures growth = growth_figures(
        is_shared_out ? changes(now.pss_bytes, earlier.pss_bytes) : changes(now.rss_bytes, earlier.rss_bytes),
        resident_bytes);
    growth.is_shared_out = is_shared_out;
    return growth;
}

MemoryFigures MemoryReporter::figures_of(const ScopeFigures& figures, bool is_stopped) {
    MemoryFigures memory;
    uint64_t pss_bytes = 0;
    size_t living = 0;
    size_t read_processes = 0;
    for (const ProcessFigures& process : figures.processes) {
        const auto read = memory_.find(process.number);
        const auto rss_bytes = read != memory_.end() ? std::optional(read->second.now.rss_sum())
                               : process.has_ended   ? std::nullopt
                                                     : tracer_.rss_bytes(process.pid);
        if (rss_bytes) memory.rss_bytes = memory.rss_bytes.value_or(0) + *rss_bytes;
        if (process.has_ended) continue;
        if (const auto mapped_bytes = read_mapped_bytes(process.pid))
            memory.mapped_bytes = memory.mapped_bytes.value_or(0) + *mapped_bytes;
        ++living;
        if (read == memory_.end()) continue;
        ++read_processes;
        pss_bytes += read->second.now.pss_sum();
    }
    if (living > 0 && read_processes == living) memory.pss_bytes = pss_bytes;
    // What the probes say is of the time before, and would be compared with now.
    if (!is_stopped) memory.growth = growth_of(figures);
    if (memory.rss_bytes) memory.rss_growth_bytes = rss_growth(figures, *memory.rss_bytes);
    return memory;
}

/// By the exact reading where there was one at the start.
std::optional<int64_t> MemoryReporter::rss_growth(const ScopeFigures& figures, uint64_t rss_bytes) const {
    const auto start = starts_.find(figures.scope);
    if (start == starts_.end()) return std::nullopt;
    uint64_t earlier_bytes = 0;
    for (const uint64_t number : start->second.processes) {
        const auto then = watch_.earlier(number);
        if (!then) return static_cast<int64_t>(rss_bytes - start->second.rss_bytes);
        earlier_bytes += then->rss_sum();
    }
    return static_cast<int64_t>(rss_bytes - earlier_bytes);
}

void MemoryReporter::forget_ended(const std::unordered_set<uint64_t>& living,
                                  const std::unordered_set<uint32_t>& scopes) {
    std::erase_if(starts_, [&](const auto& entry) { return !scopes.contains(entry.first); });
    std::unordered_set<uint64_t> counted;
    for (const auto& [scope, start] : starts_)
        counted.insert(start.processes.begin(), start.processes.end());
    std::erase_if(processes_, [&](uint64_t number) {
        if (living.contains(number)) return false;
        watch_.end(number);
        // What it had when its scope was new still counts against what the scope has.
        if (counted.contains(number)) return false;
        watch_.forget(number);
        return true;
    });
}

}  // namespace memtrace
