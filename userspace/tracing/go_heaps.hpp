// Go's heaps of the targets: what the runtime's samples stand for, what was live before the attach, and what objects
// are called. Uses base, probes, processes, runtimes, reports' records and heap.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "heap/snapshot.hpp"
#include "probes/allocator_table.hpp"
#include "reports/document.hpp"
#include "runtimes/go_heap_profile.hpp"
#include "runtimes/go_types.hpp"
#include "tracing/target.hpp"

namespace memtrace {

/// For one thread.
class GoHeaps {
  public:
    explicit GoHeaps(const AllocatorTable& table) : table_(table) {}

    /// Opens the heaps of Go programs among `targets`.
    void open_heaps(const std::map<pid_t, Target>& targets);
    /// Some target is, or was, a Go program: its blocks are needed whole.
    bool has_any() const { return !heaps_.empty(); }
    /// Reads the runtimes' own sums. Before a snapshot: what they know then, the kernel side must know in it.
    void read_profiles();
    /// The present address space of `pid` has ended.
    void end_address_space(pid_t pid);
    /// The process is no target any more.
    void forget(pid_t pid) { heaps_.erase(pid); }

    /// Makes of samples what they stand for, and says so where the runtime counted more than was seen.
    void complete(Snapshot& snapshot);
    /// Takes the objects of Go programs out of the snapshot's typed ones, with what is live of them.
    std::vector<TypedObjects> take_typed_objects(Snapshot& snapshot) const;

    /// The name of a type of the objects of `pid`; none where it is no Go program.
    std::optional<std::string> type_name(pid_t pid, uint32_t type) const;
    /// What is still live of what was before the attach, by call stack; estimates.
    std::optional<BeforeAttachRecord> live_from_before(pid_t pid) const;

  private:
    /// By address of the runtime's bucket.
    using Buckets = std::unordered_map<uint64_t, GoAllocations>;

    /// One Go program that runs, or has run.
    struct Heap {
        std::unique_ptr<GoProcess> process;
        std::optional<GoHeapReader> reader;
        std::unique_ptr<GoTypes> types;
        Buckets first;  // when it was opened
        Buckets now;
        std::unordered_map<uint64_t, uint64_t> seen_live;  // samples since the attach, by bucket
        uint64_t rate_bytes = 0;
        bool has_ended = false;   // by an exec or exit
        bool has_warned = false;  // of what is not seen
    };

    /// What the probes have seen of one heap.
    struct Seen {
        uint64_t samples = 0;
        uint64_t allocated_bytes = 0;  // of all allocations, with --go-full
    };

    void open(pid_t pid, Heap& heap) const;
    void read_profile(pid_t pid, Heap& heap) const;
    void scale(Snapshot& snapshot, const std::unordered_map<uint32_t, Heap*>& heaps) const;
    void check_is_complete(pid_t pid, Heap& heap, const Seen& seen) const;

    const AllocatorTable& table_;
    std::map<pid_t, Heap> heaps_;
};

}  // namespace memtrace
