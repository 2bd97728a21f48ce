// glibc's malloc in a running process: where its arenas are and what they are made of. Reads from outside and stops
// nothing. Uses processes and glibc_layout.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "processes/mappings.hpp"
#include "processes/target_memory.hpp"
#include "runtimes/glibc_layout.hpp"

namespace memtrace {

/// Memory that chunks lie in one after the other: the brk heap, or one heap of a thread's arena.
struct GlibcRegion {
    uint64_t arena = 0;
    uint64_t heap = 0;     // heap_info; 0: the brk heap
    uint64_t begin = 0;    // the first chunk
    uint64_t end = 0;      // as it was a moment ago
    bool has_top = false;  // its last chunk is the arena's top
};

/// The heap that brk moves the end of; both 0: none. What a process has of it from before a fork is a mapping apart.
struct BrkHeap {
    uint64_t begin = 0;
    uint64_t end = 0;
};
BrkHeap find_brk_heap(const std::vector<Mapping>& mappings);

/// For one thread.
class GlibcMalloc {
  public:
    /// Errors: no_such_target, not_privileged; no_allocator where no glibc is mapped that has given out a block, or one
    /// of a version that is not known.
    static Result<GlibcMalloc> find(pid_t pid);
    /// Of a main arena that is known, whose brk heap is [heap_begin, heap_end). For tests.
    GlibcMalloc(TargetMemory memory, uint64_t main_arena, uint64_t heap_begin, uint64_t heap_end)
        : memory_(std::move(memory)), main_arena_(main_arena), heap_begin_(heap_begin), heap_end_(heap_end) {}

    const TargetMemory& memory() const { return memory_; }
    /// "2.36"; empty where a static program does not tell.
    const std::string& version() const { return version_; }
    uint64_t main_arena() const { return main_arena_; }

    /// The main arena first. None when the ring of arenas could not be followed.
    std::optional<std::vector<uint64_t>> arenas() const;
    std::optional<GlibcArena> arena(uint64_t address) const;
    /// In the order in which they were made. None when they could not be followed.
    std::optional<std::vector<GlibcRegion>> regions(uint64_t arena) const;
    /// Where `region` ends now.
    std::optional<uint64_t> end_of(const GlibcRegion& region) const;
    /// What an arena keeps at the head of its heaps.
    uint64_t head_bytes(const GlibcRegion& region) const { return region.heap == 0 ? 0 : region.begin - region.heap; }
    /// Blocks that have a mapping of their own; none where it is not known.
    std::optional<GlibcParameters> parameters() const;

  private:
    GlibcMalloc(TargetMemory memory, pid_t pid, uint64_t main_arena, Mapping data)
        : memory_(std::move(memory)), pid_(pid), main_arena_(main_arena), data_(std::move(data)) {}
    bool begins_with_thread_cache() const;
    std::optional<uint64_t> main_end() const;
    uint64_t heap_end() const;

    TargetMemory memory_;
    pid_t pid_ = 0;  // 0: the brk heap stays as it is
    uint64_t main_arena_ = 0;
    Mapping data_;             // that the main arena is in
    uint64_t brk_begin_ = 0;   // 0: the process has no brk heap
    uint64_t heap_begin_ = 0;  // where malloc's part of it begins
    uint64_t heap_end_ = 0;
    std::string version_;
};

}  // namespace memtrace
