// Goes through the chunks of one region of glibc's malloc, while the process goes on. Uses glibc_malloc.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "runtimes/glibc_malloc.hpp"

namespace memtrace {

struct GlibcChunk {
    uint64_t address = 0;
    uint64_t size_bytes = 0;
    bool is_in_use = false;   // also true of a free chunk in a fast bin or a thread's cache
    bool is_top = false;      // what the arena has not given out yet
    uint64_t first_word = 0;  // of the block in it
    uint64_t second_word = 0;
};

/// A walk goes from chunk to chunk by their sizes, in windows that are read at once. What was torn by the process shows
/// as a chunk that cannot be, and is read again, from ever further back. For one thread.
class GlibcChunkWalk {
  public:
    /// No walk goes on after `deadline_ns`, of CLOCK_MONOTONIC.
    explicit GlibcChunkWalk(const GlibcMalloc& malloc, uint64_t deadline_ns = UINT64_MAX)
        : malloc_(malloc), deadline_ns_(deadline_ns) {}

    /// Calls `visit` with chunks that lie next to each other, all in their order, until it returns false. False when
    /// the chunks change too quickly to be followed, or time is up: then what was visited is not all.
    bool walk(GlibcRegion region, const std::function<bool(std::span<const GlibcChunk>)>& visit);

    /// Windows that were read again.
    uint64_t retries() const { return retries_; }

  private:
    struct Window {
        uint64_t begin = 0;
        uint64_t next = 0;  // where the next one begins
        std::vector<GlibcChunk> chunks;
    };

    std::optional<Window> read_window(uint64_t begin, const GlibcRegion& region);
    std::optional<GlibcChunk> chunk_at(uint64_t address, std::span<const std::byte> bytes,
                                       const GlibcRegion& region) const;
    bool note_use(GlibcChunk& chunk, std::span<const std::byte> successor) const;
    uint64_t step_back(uint64_t position, uint64_t failures);

    const GlibcMalloc& malloc_;
    uint64_t deadline_ns_;
    std::deque<Window> unsettled_;  // may be read again
    std::vector<std::byte> buffer_;
    uint64_t retries_ = 0;
};

}  // namespace memtrace
