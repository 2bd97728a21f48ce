#include "runtimes/glibc_layout.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace memtrace {
namespace {

constexpr size_t word_bytes = 8;
constexpr uint64_t page_bytes = 4096;
// malloc_state
constexpr size_t arena_flags = 4;
constexpr size_t arena_has_fast_chunks = 8;
constexpr size_t arena_fast_bins = 16;
constexpr size_t arena_top = 96;
constexpr size_t arena_bins = 112;
constexpr size_t arena_next = 2160;
constexpr size_t arena_system_bytes = 2184;
constexpr size_t arena_max_system_bytes = 2192;
constexpr size_t bin_count = 127;
constexpr size_t bin_bytes = 16;
/// A thread may be at work on a bin, and have put its chunk into another one, while it is read.
constexpr size_t most_changing_bins = 2;
constexpr uint32_t noncontiguous_flag = 2;
constexpr uint32_t most_flags = 7;
constexpr uint32_t most_lock = 2;
// malloc_par, around its member sbrk_base; the counters lie before it, since 2.35 with a gap behind them.
constexpr size_t par_bytes = 24;
constexpr size_t par_most_bytes = 32;
constexpr size_t par_heap_begin = 40;
constexpr size_t par_cache_bins = 48;
constexpr size_t par_cache_most_bytes = 56;
constexpr size_t par_size = 64;
constexpr std::array<size_t, 2> par_counters = {4, 8};  // n_mmaps, n_mmaps_max, max_n_mmaps
constexpr uint64_t cache_bins = 64;
/// What hostile memory can cost.
constexpr size_t max_guesses = 1 << 16;

template <typename Value>
Value value_at(std::span<const std::byte> bytes, size_t offset) {
    Value value{};
    if (offset + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
}

uint64_t word_at(std::span<const std::byte> bytes, size_t offset) {
    return value_at<uint64_t>(bytes, offset);
}

bool is_chunk_address(uint64_t address) {
    return address % glibc_chunk_alignment == 0;
}

bool has_bins(std::span<const std::byte> bytes, uint64_t address) {
    bool has_empty = false;
    size_t changing = 0;
    for (size_t bin = 0; bin < bin_count; ++bin) {
        const size_t offset = arena_bins + bin * bin_bytes;
        const uint64_t self = address + offset - bin_bytes;
        const uint64_t first = word_at(bytes, offset);
        const uint64_t last = word_at(bytes, offset + word_bytes);
        if (first == 0 || last == 0 || !is_chunk_address(first) || !is_chunk_address(last)) return false;
        if ((first == self) != (last == self)) ++changing;
        has_empty = has_empty || first == self;
    }
    return has_empty && changing <= most_changing_bins;
}

/// The chunk that malloc(size) needs.
uint64_t chunk_of(uint64_t size_bytes) {
    const uint64_t chunk =
        (size_bytes + glibc_chunk_overhead_bytes + glibc_chunk_alignment - 1) & ~(glibc_chunk_alignment - 1);
    return std::max(chunk, glibc_smallest_chunk_bytes);
}

/// n_mmaps; none where the counters are elsewhere.
std::optional<uint64_t> mapped_blocks(std::span<const std::byte> bytes, size_t offset) {
    const auto now = value_at<int32_t>(bytes, offset);
    const auto limit = value_at<int32_t>(bytes, offset + 4);
    const auto most = value_at<int32_t>(bytes, offset + 8);
    const bool was_used = word_at(bytes, par_most_bytes) != 0;
    if (now < 0 || now > most || most > limit || (most != 0) != was_used) return std::nullopt;
    return static_cast<uint64_t>(now);
}

std::optional<GlibcParameters> parse_parameters(std::span<const std::byte> bytes) {
    const uint64_t mapped = word_at(bytes, par_bytes);
    if (mapped % page_bytes != 0 || mapped > word_at(bytes, par_most_bytes)) return std::nullopt;
    const uint64_t bins = word_at(bytes, par_cache_bins);
    const uint64_t most = word_at(bytes, par_cache_most_bytes);
    if (bins == 0 || bins > cache_bins || most > (cache_bins + 1) * glibc_chunk_alignment) return std::nullopt;
    if ((chunk_of(most) - glibc_smallest_chunk_bytes) / glibc_chunk_alignment + 1 != bins) return std::nullopt;
    for (const size_t offset : par_counters)
        if (const auto blocks = mapped_blocks(bytes, offset))
            return GlibcParameters{
                .mapped_blocks = *blocks, .mapped_bytes = mapped, .heap_begin = word_at(bytes, par_heap_begin)};
    return std::nullopt;
}

}  // namespace

BlockSizes glibc_block_sizes(uint64_t chunk_bytes) {
    if (chunk_bytes <= glibc_smallest_chunk_bytes)
        return {.least = 0, .most = glibc_smallest_chunk_bytes - glibc_chunk_overhead_bytes};
    const uint64_t most = chunk_bytes - glibc_chunk_overhead_bytes;
    return {.least = most - glibc_chunk_alignment + 1, .most = most};
}

BlockSizes glibc_mapped_block_sizes(uint64_t chunk_bytes) {
    const uint64_t most = chunk_bytes - 2 * glibc_chunk_overhead_bytes;
    return {.least = most - page_bytes + 1, .most = most};
}

std::optional<GlibcArena> parse_glibc_arena(std::span<const std::byte> bytes, uint64_t address) {
    if (bytes.size() < glibc_arena_bytes) return std::nullopt;
    const auto flags = value_at<uint32_t>(bytes, arena_flags);
    if (value_at<uint32_t>(bytes, 0) > most_lock || flags > most_flags) return std::nullopt;
    if (value_at<uint32_t>(bytes, arena_has_fast_chunks) > 1) return std::nullopt;
    GlibcArena arena;
    arena.is_contiguous = (flags & noncontiguous_flag) == 0;
    for (size_t i = 0; i < arena.fast_bins.size(); ++i) {
        arena.fast_bins[i] = word_at(bytes, arena_fast_bins + i * word_bytes);
        if (!is_chunk_address(arena.fast_bins[i])) return std::nullopt;
    }
    arena.top = word_at(bytes, arena_top);
    arena.next = word_at(bytes, arena_next);
    arena.system_bytes = word_at(bytes, arena_system_bytes);
    if (arena.top == 0 || arena.next == 0 || !is_chunk_address(arena.top)) return std::nullopt;
    if (arena.system_bytes > word_at(bytes, arena_max_system_bytes)) return std::nullopt;
    if (!has_bins(bytes, address)) return std::nullopt;
    return arena;
}

GlibcHeap parse_glibc_heap(std::span<const std::byte, glibc_heap_bytes> bytes) {
    return {.arena = word_at(bytes, 0),
            .previous = word_at(bytes, word_bytes),
            .size_bytes = word_at(bytes, 2 * word_bytes)};
}

std::optional<GlibcThreadCache> parse_glibc_thread_cache(std::span<const std::byte> bytes) {
    GlibcThreadCache cache;
    constexpr size_t counts_bytes = sizeof(uint16_t) * cache_bins;
    if (bytes.size() < counts_bytes + cache_bins * word_bytes) return std::nullopt;
    size_t contradictions = 0;
    for (size_t i = 0; i < cache_bins; ++i) {
        cache.counts[i] = value_at<uint16_t>(bytes, i * sizeof(uint16_t));
        cache.first_blocks[i] = word_at(bytes, counts_bytes + i * word_bytes);
        if (!is_chunk_address(cache.first_blocks[i])) return std::nullopt;
        if ((cache.counts[i] == 0) != (cache.first_blocks[i] == 0)) ++contradictions;
    }
    // The thread may be at work on one list.
    if (contradictions > 1) return std::nullopt;
    return cache;
}

std::optional<uint64_t> find_glibc_arena(std::span<const std::byte> bytes, uint64_t address) {
    size_t guesses = 0;
    for (size_t offset = arena_bins; offset + bin_bytes <= bytes.size(); offset += word_bytes) {
        const uint64_t self = address + offset - bin_bytes;
        if (word_at(bytes, offset) != self || word_at(bytes, offset + word_bytes) != self) continue;
        for (size_t bin = 0; bin < bin_count && offset >= arena_bins + bin * bin_bytes; ++bin) {
            const size_t begin = offset - arena_bins - bin * bin_bytes;
            if (parse_glibc_arena(bytes.subspan(begin), address + begin)) return address + begin;
            if (++guesses == max_guesses) return std::nullopt;
        }
    }
    return std::nullopt;
}

std::optional<GlibcParameters> find_glibc_parameters(std::span<const std::byte> bytes, uint64_t heap_begin,
                                                     uint64_t heap_end) {
    for (size_t offset = 0; offset + par_size <= bytes.size(); offset += word_bytes) {
        const uint64_t begin = word_at(bytes, offset + par_heap_begin);
        if (begin < heap_begin || begin >= heap_end) continue;
        if (const auto parameters = parse_parameters(bytes.subspan(offset, par_size))) return parameters;
    }
    return std::nullopt;
}

std::optional<uint32_t> find_glibc_version(std::string_view text) {
    constexpr std::string_view mark = " release version 2.";
    for (size_t at = text.find("GNU C Library ("); at != std::string_view::npos;
         at = text.find("GNU C Library (", at + 1)) {
        const std::string_view line = text.substr(at, 256);
        const size_t found = line.find(mark);
        if (found == std::string_view::npos) continue;
        const std::string_view number = line.substr(found + mark.size());
        uint32_t minor = 0;
        if (std::from_chars(number.data(), number.data() + number.size(), minor).ec == std::errc()) return minor;
    }
    return std::nullopt;
}

}  // namespace memtrace
