// What glibc's malloc keeps in memory, for x86-64: pure functions of bytes that were read from a process. Uses nothing
// of the project. The bytes may be torn by the process that goes on writing them, or be an enemy's.
// Source: glibc 2.30 to 2.41, malloc/malloc.c and arena.c (malloc_state, malloc_par, tcache_perthread_struct,
// heap_info, malloc_chunk); the structures are the same in all of these, but for what is said below.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace memtrace {

/// An arena (malloc_state); addresses are those of the process.
struct GlibcArena {
    bool is_contiguous = true;             // the main arena: grown by brk alone
    std::array<uint64_t, 10> fast_bins{};  // chunks
    uint64_t top = 0;                      // chunk
    uint64_t next = 0;                     // arena; a ring
    uint64_t system_bytes = 0;             // that it has from the kernel
};
constexpr size_t glibc_arena_bytes = 2200;

/// malloc_par.
struct GlibcParameters {
    uint64_t mapped_blocks = 0;  // that have a mapping of their own
    uint64_t mapped_bytes = 0;
    uint64_t heap_begin = 0;  // where brk was when the main arena began; 0: it did not
};

/// heap_info: the head of one of the heaps that a thread's arena is made of.
struct GlibcHeap {
    uint64_t arena = 0;
    uint64_t previous = 0;  // heap; 0: none
    uint64_t size_bytes = 0;
};
constexpr size_t glibc_heap_bytes = 32;
/// A heap begins at a multiple of this (but with the tunable glibc.malloc.hugetlb=2).
constexpr uint64_t glibc_heap_alignment = 64ull << 20;

/// The free blocks of one thread: of chunks of 32, 48 ... bytes (tcache_perthread_struct).
struct GlibcThreadCache {
    std::array<uint16_t, 64> counts{};
    std::array<uint64_t, 64> first_blocks{};  // what malloc returned, not chunks
};
/// Of the chunk that a thread's cache is in; since glibc 2.30, another one since 2.42.
constexpr uint64_t glibc_thread_cache_chunk_bytes = 0x290;

/// What a chunk's second word says.
struct GlibcChunkHead {
    uint64_t size_bytes = 0;
    bool is_previous_in_use = false;
    bool is_mapped = false;     // has a mapping of its own
    bool is_of_thread = false;  // not the main arena's; only told of chunks that are in use
};
constexpr uint64_t glibc_smallest_chunk_bytes = 32;
constexpr uint64_t glibc_chunk_alignment = 16;
/// The part of a chunk that is not the block's.
constexpr uint64_t glibc_chunk_overhead_bytes = 8;

constexpr GlibcChunkHead glibc_chunk_head(uint64_t word) {
    return {.size_bytes = word & ~uint64_t{7},
            .is_previous_in_use = (word & 1) != 0,
            .is_mapped = (word & 2) != 0,
            .is_of_thread = (word & 4) != 0};
}

/// Sizes of blocks that get a chunk of `chunk_bytes`: the smallest and the largest.
struct BlockSizes {
    uint64_t least = 0;
    uint64_t most = 0;
};
BlockSizes glibc_block_sizes(uint64_t chunk_bytes);
/// The same of a chunk that is a mapping of its own.
BlockSizes glibc_mapped_block_sizes(uint64_t chunk_bytes);

/// `bytes` are those at `address`. None where they contradict what an arena in use is.
std::optional<GlibcArena> parse_glibc_arena(std::span<const std::byte> bytes, uint64_t address);
GlibcHeap parse_glibc_heap(std::span<const std::byte, glibc_heap_bytes> bytes);
/// Of the block in a chunk of glibc_thread_cache_chunk_bytes. None where it is something else.
std::optional<GlibcThreadCache> parse_glibc_thread_cache(std::span<const std::byte> bytes);

/// The address of the first arena in `bytes`, which are those at `address`. An arena is known by its empty bins, which
/// point to themselves: no symbol is needed.
std::optional<uint64_t> find_glibc_arena(std::span<const std::byte> bytes, uint64_t address);

/// The parameters of a main arena whose brk heap lies in [heap_begin, heap_end): known by their relations to each
/// other.
std::optional<GlibcParameters> find_glibc_parameters(std::span<const std::byte> bytes, uint64_t heap_begin,
                                                     uint64_t heap_end);

/// The minor number of the version in "... stable release version 2.36."; none where there is no such text.
std::optional<uint32_t> find_glibc_version(std::string_view text);
constexpr uint32_t oldest_known_glibc = 30;
constexpr uint32_t newest_known_glibc = 41;

}  // namespace memtrace
