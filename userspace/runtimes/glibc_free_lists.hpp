// Free blocks that glibc's malloc does not mark as free: those in threads' caches and in fast bins. Uses glibc_chunks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtimes/glibc_chunks.hpp"

namespace memtrace {

/// What stands in the second word of a block while it is in a thread's cache: since glibc 2.34 one random number for
/// all threads, before the cache's address (malloc.c, tcache_key).
class GlibcCacheKeys {
  public:
    /// Goes through the arenas until the key is found. None when they could not be followed.
    static std::optional<GlibcCacheKeys> find(const GlibcMalloc& malloc);

    bool is_cached(const GlibcChunk& chunk) const {
        return chunk.size_bytes <= largest_cached_bytes && chunk.second_word != 0 && keys_.contains(chunk.second_word);
    }
    /// Whether one number was found that is no cache's address: only glibc 2.34 and later have that.
    bool is_one_for_all_threads() const { return is_one_for_all_threads_; }

  private:
    static constexpr uint64_t largest_cached_bytes = 32 + 63 * 16;

    void look_into(const GlibcMalloc& malloc, uint64_t block);
    bool has_common_key(uint64_t fewest_votes);

    std::map<uint64_t, uint64_t> votes_;  // for keys that are no cache's address
    uint64_t all_votes_ = 0;
    std::unordered_set<uint64_t> keys_;
    bool is_one_for_all_threads_ = false;
};

/// The fast bins of one arena. Their blocks are singly linked, since glibc 2.32 by links that are mangled with the
/// upper bits of their own address (PROTECT_PTR).
class GlibcFastBins {
  public:
    /// Of chunks that are larger none is in a fast bin (MAX_FAST_SIZE).
    static constexpr uint64_t largest_bytes = 176;

    /// With `may_be_plain` a link may be one of either kind: which, is told by where it leads.
    explicit GlibcFastBins(bool may_be_plain) : may_be_plain_(may_be_plain) {}

    /// Before the walk of an arena's chunks and after it.
    void note_heads(const GlibcArena& arena);
    /// A chunk in use of the arena that could be in a bin.
    void note_chunk(const GlibcChunk& chunk);
    /// The noted chunks that are in the bins.
    std::vector<GlibcChunk> members() const;

  private:
    bool may_be_plain_;
    std::vector<uint64_t> heads_;
    std::unordered_map<uint64_t, GlibcChunk> candidates_;
};

}  // namespace memtrace
