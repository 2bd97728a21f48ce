// Resident memory of the scopes of a report: how much, and where it grew since the attach. Uses tracing/, heap/ and
// reports/.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "heap/figures.hpp"
#include "reports/document.hpp"
#include "tracing/memory_watch.hpp"
#include "tracing/tracer.hpp"

namespace memtrace {

/// For one thread. Processes go by Scopes::Process::number.
class MemoryReporter {
  public:
    /// `tracer` must outlive it. `reads_all_blocks` is --resident: it takes the time that it takes.
    MemoryReporter(Tracer& tracer, bool reads_all_blocks)
        : tracer_(tracer), watch_(tracer, reads_all_blocks), has_time_limit_(!reads_all_blocks) {}

    /// Call it before the processes of a tick are added.
    void begin_tick();
    /// A process that is seen for the first time. What it has then does not count as growth if its scope is new too.
    void add(uint64_t number, pid_t pid, uint32_t scope);
    /// Reads the memory of these processes, all those that live and are reported.
    void read(const std::map<uint64_t, pid_t>& living, const Snapshot& snapshot);
    /// Nothing was read: what is reported has ended.
    void read_nothing() { memory_.clear(); }
    /// Of live heap blocks, by call site; none unless all blocks are looked up.
    const std::unordered_map<uint32_t, uint64_t>* resident_bytes() const {
        return has_time_limit_ ? nullptr : &watch_.resident_bytes();
    }

    MemoryFigures figures_of(const ScopeFigures& figures, bool is_stopped);
    /// What has ended, and the scopes that no process is in any more, are forgotten.
    void forget_ended(const std::unordered_set<uint64_t>& living, const std::unordered_set<uint32_t>& scopes);

  private:
    /// What a scope had when it was seen for the first time.
    struct Start {
        std::vector<uint64_t> processes;
        uint64_t rss_bytes = 0;
    };

    std::optional<GrowthFigures> growth_of(const ScopeFigures& figures) const;
    std::optional<int64_t> rss_growth(const ScopeFigures& figures, uint64_t rss_bytes) const;

    Tracer& tracer_;
    MemoryWatch watch_;
    bool has_time_limit_;
    uint64_t deadline_ns_ = 0;
    std::unordered_map<uint32_t, Start> starts_;          // by scope
    std::unordered_set<uint32_t> new_scopes_;             // of this tick
    std::unordered_map<uint64_t, ProcessMemory> memory_;  // of this report
    std::unordered_set<uint64_t> processes_;              // that are watched
};

}  // namespace memtrace
