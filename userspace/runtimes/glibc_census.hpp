// What glibc's malloc in a running process has given out and what it keeps, chunk by chunk, without a probe and without
// stopping the process. Uses processes and the other glibc files of this folder.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "runtimes/glibc_malloc.hpp"

namespace memtrace {

/// Chunks, with malloc's own part of each.
struct ChunkSum {
    uint64_t chunks = 0;
    uint64_t size_bytes = 0;

    void add(uint64_t chunk_bytes) {
        ++chunks;
        size_bytes += chunk_bytes;
    }
    ChunkSum& operator+=(const ChunkSum& other) {
        chunks += other.chunks;
        size_bytes += other.size_bytes;
        return *this;
    }
    friend bool operator==(const ChunkSum&, const ChunkSum&) = default;
};

/// Chunks of one size.
struct ChunkSizeSums {
    uint64_t chunk_bytes = 0;
    bool is_mapped = false;  // each a mapping of its own
    ChunkSum in_use;
    ChunkSum free;  // also in threads' caches and fast bins
};

struct GlibcCensus {
    std::string version;  // "2.36"; empty where a static program does not tell
    uint64_t arenas = 0;  // the main one and those of threads
    uint64_t system_bytes =
        0;  // that the arenas have from the kernel: the sum of what follows, but for not_found_bytes
    ChunkSum in_use;
    ChunkSum thread_cached;        // free, in the threads' caches (tcache)
    ChunkSum fast;                 // free, in fast bins
    ChunkSum binned;               // free, in the other bins
    uint64_t top_bytes = 0;        // behind the last chunks, not given out yet
    uint64_t head_bytes = 0;       // of arenas and heaps
    uint64_t not_found_bytes = 0;  // of an arena whose memory could not be followed to its end

    bool has_mapped = false;  // whether what follows is known
    ChunkSum mapped;          // blocks that have a mapping of their own, in no figure above; malloc's own count
    uint64_t mapped_chunks_sized = 0;  // of these, those that are in `sizes`

    uint64_t resident_free_bytes = 0;  // of the free memory above that which is in memory
    uint64_t resident_bytes = 0;       // of all that the arenas have, in blocks too
    bool has_all_fast = true;      // else there were too many blocks to tell which are in fast bins: `in_use` has some
    uint64_t trimmable_bytes = 0;  // of it what malloc_trim(0) would give back: whole pages
    uint64_t torn_reads = 0;       // that were read again
    std::vector<ChunkSizeSums> sizes;  // by chunk_bytes, those with mappings of their own last

    uint64_t free_bytes() const { return thread_cached.size_bytes + fast.size_bytes + binned.size_bytes + top_bytes; }
};

/// What a census may cost.
struct GlibcCensusLimits {
    uint64_t deadline_ns = UINT64_MAX;  // CLOCK_MONOTONIC
    bool finds_mapped_sizes = true;     // those of blocks that have a mapping of their own: they are searched for
};

/// Takes some 0.3 s for each GB of small blocks. Needs the rights of ptrace(2); reads what is swapped out back in.
/// Errors: no_such_target, not_privileged, no_allocator as for GlibcMalloc::find; failure where the heap changes too
/// quickly to be followed.
Result<GlibcCensus> take_glibc_census(pid_t pid);
/// The same of a malloc that was found in `pid`; failure too when time was up.
Result<GlibcCensus> take_glibc_census(const GlibcMalloc& malloc, pid_t pid, const GlibcCensusLimits& limits = {});

}  // namespace memtrace
