// The garbage-collected heaps of the targets: what their collectors have given back leaves the live table, and objects
// get their types. Uses base, probes, processes, runtimes, kernel and heap.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "heap/snapshot.hpp"
#include "kernel/session.hpp"
#include "probes/allocator_table.hpp"
#include "runtimes/collected_process.hpp"
#include "tracing/target.hpp"

namespace memtrace {

/// For one thread.
class CollectedHeaps {
  public:
    CollectedHeaps(Session& session, const AllocatorTable& table, TypeNames dumped_names)
        : session_(session), table_(table), dumped_names_(std::move(dumped_names)) {}

    /// Opens the collected heaps of `targets` that can be read by now: once the dynamic linker has done its work.
    void open_heaps(const std::map<pid_t, Target>& targets);
    /// The same, but not again and again; false when it is too soon.
    bool open_soon(const std::map<pid_t, Target>& targets, uint64_t now_ns);
    /// Some target has, or had, a collected heap: its blocks are needed whole.
    bool has_any() const { return !heaps_.empty(); }
    /// The present address space of `pid` has ended.
    void end_address_space(pid_t pid);
    /// The process is no target any more.
    void forget(pid_t pid) { heaps_.erase(pid); }

    /// Releases the blocks that were dead at the last collection of their heap; true when there were any: the snapshot
    /// is then out of date.
    bool release_dead(const Snapshot& snapshot);
    /// Completes the snapshot's typed objects by what is live, and leaves out what is no object.
    void add_live_objects(Snapshot& snapshot);

    /// The name of a type of the objects of `pid`; "type#172" where nothing names it.
    std::string type_name(pid_t pid, uint32_t type) const;

  private:
    /// One collected heap.
    struct Heap {
        std::unique_ptr<BoehmHeap> boehm;  // null: it cannot be read, or not yet
        ProcessTypes types;
        uint64_t opened_ns = 0;  // and the collections that had been then
        uint64_t first_collections = 0;
        std::optional<uint64_t> unseen_bytes;  // at the first snapshot: the collector's count without what was seen
        std::string why_not;                   // it cannot be read
        bool has_warned = false;               // ... and the reader was told
        bool has_ended = false;                // by an exec; the types are still asked for
    };

    Heap* readable_heap(pid_t pid);
    void try_open(pid_t pid, const Mapping& mapping, Heap& heap);
    void check_is_complete(const Snapshot& snapshot, const AddressSpace& space, Heap& heap);
    static uint64_t youngest_collected_ns(const AddressSpace& space, const Heap& heap, uint64_t collections);
    std::unordered_set<uint32_t> owners_with_types(const Snapshot& snapshot) const;
    std::vector<Block> dead_blocks(const Snapshot& snapshot, const AddressSpace& space, const Heap& heap) const;

    Session& session_;
    const AllocatorTable& table_;
    TypeNames dumped_names_;
    std::map<pid_t, Heap> heaps_;
    uint64_t tried_ns_ = 0;
};

}  // namespace memtrace
