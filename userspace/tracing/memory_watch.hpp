// Where the resident memory of the targets is, and where it was when they were first looked at: /proc/PID/smaps and
// pagemap, seen with the mapping ledger and the live blocks. Uses processes, heap and the tracer.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "heap/residency.hpp"
#include "heap/snapshot.hpp"
#include "processes/resident_pages.hpp"
#include "tracing/tracer.hpp"

namespace memtrace {

/// One process now, against when it was first looked at.
struct ProcessMemory {
    MemoryByKind now;
    uint64_t untouched_bytes = 0;  // of live heap blocks: not resident. Of large ones only, unless all are asked for
};

/// For one thread.
class MemoryWatch {
  public:
    /// `tracer` must outlive it. `reads_all_blocks`: the resident part of every live block is looked up, which needs
    /// snapshots with whole blocks.
    MemoryWatch(const Tracer& tracer, bool reads_all_blocks) : tracer_(tracer), reads_all_blocks_(reads_all_blocks) {}

    /// The first look at a target, under a number of the caller's. What a command has before its exec is nothing.
    void begin(uint64_t number, pid_t pid);
    /// The target has ended; what it had at the first look is remembered until forget().
    void end(uint64_t number);
    void forget(uint64_t number) { watched_.erase(number); }
    /// What a target had when it was looked at for the first time; none where that is not known.
    std::optional<MemoryByKind> earlier(uint64_t number) const;

    /// None where /proc does not tell, or where the process is larger than one may wait for (unless all blocks are
    /// asked for). Reads smaps: see read_resident_mappings() for what that costs the process. Fills resident_bytes().
    std::optional<ProcessMemory> read(uint64_t number, const Snapshot& snapshot);
    /// Forgets the resident bytes of call sites: a new report begins.
    void begin_report() { resident_bytes_.clear(); }
    /// Of the live blocks of a call site, of the processes that were read; with `reads_all_blocks`.
    const std::unordered_map<uint32_t, uint64_t>& resident_bytes() const { return resident_bytes_; }

  private:
    struct Watched {
        pid_t pid = 0;
        bool has_begun = false;  // else nothing is known of what was there
        EarlierMemory earlier;
    };
    /// One reading of /proc.
    struct Reading {
        std::vector<ResidentRange> ranges;
        std::vector<KnownRange> known;
        std::optional<ResidentPages> pages;

        ResidentBytes resident_bytes();
    };

    std::optional<Reading> read_process(pid_t pid) const;
    bool is_too_large(pid_t pid) const;
    std::span<const uint32_t> owners_of(pid_t pid) const;
    void learn(Watched& watched, const Snapshot& snapshot) const;
    uint64_t untouched_bytes(Reading& reading, uint32_t owner, const Snapshot& snapshot);

    const Tracer& tracer_;
    bool reads_all_blocks_;
    std::unordered_map<uint64_t, Watched> watched_;  // by number
    std::unordered_map<uint32_t, uint64_t> resident_bytes_;
};

}  // namespace memtrace
