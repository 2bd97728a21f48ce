// Free blocks that glibc's malloc does not mark as free: those in threads' caches and in fast bins. Uses glibc_chunks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_set>
#include <vector>

#include "runtimes/glibc_chunks.hpp"

namespace memtrace {

/// What stands in the second word of a block while it is in a thread's cache: since glibc 2.34 one random number for
/// all threads, before the cache's address (malloc.c, tcache_key).
class GlibcCacheKeys {
  public:
    /// Goes through the arenas until the key is found. None when they could not be followed until `deadline_ns`, of
    /// CLOCK_MONOTONIC.
    static std::optional<GlibcCacheKeys> find(const GlibcMalloc& malloc, uint64_t deadline_ns = UINT64_MAX);

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
    size_t caches_looked_into_ = 0;
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
    /// The noted chunks that are in the bins, by address.
    std::vector<GlibcChunk> members();
    /// Whether all chunks that could be in a bin were noted: there may be so many that memory would not do.
    bool has_all() const { return has_all_; }
    /// That are noted at most, of 16 bytes each.
    static constexpr size_t max_candidates = size_t{1} << 22;

  private:
    /// Chunks are aligned by 16, and the largest has 11 * 16 bytes.
    struct Candidate {
        uint64_t address_and_size = 0;
        uint64_t first_word = 0;

        uint64_t address() const { return address_and_size & ~uint64_t{15}; }
        uint64_t size_bytes() const { return (address_and_size & 15) * glibc_chunk_alignment; }
    };
    const Candidate* find(uint64_t address) const;

    bool may_be_plain_;
    bool has_all_ = true;
    std::vector<uint64_t> heads_;
    std::vector<Candidate> candidates_;
};

}  // namespace memtrace
