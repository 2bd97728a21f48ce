#include "runtimes/glibc_chunks.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/clock.hpp"

namespace memtrace {
namespace {

/// A window's memory is copied in some 50 us; a chunk that is larger is stepped over without reading what is in it.
constexpr uint64_t window_bytes = 256 << 10;
constexpr uint64_t word_bytes = 8;
constexpr size_t windows_kept = 16;
constexpr uint64_t tries_in_place = 4;  // before going back
constexpr uint64_t max_failures = 64;   // at one place
constexpr uint64_t end_marks_bytes = 32;
constexpr std::chrono::microseconds between_tries(200);
/// The thread that was at work there waits for a processor, with the arena's lock: 100 ms in all.
constexpr uint64_t quick_tries = 16;
constexpr std::chrono::milliseconds between_later_tries(2);

uint64_t word_in(std::span<const std::byte> bytes, uint64_t offset) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + offset, word_bytes);
    return word;
}

bool can_be(const GlibcChunkHead& head, uint64_t room_bytes, bool is_of_thread) {
    if (head.size_bytes < glibc_smallest_chunk_bytes || head.size_bytes % glibc_chunk_alignment != 0) return false;
    if (head.size_bytes > room_bytes || head.is_mapped) return false;
    return is_of_thread || !head.is_of_thread;
}

/// What stands behind the last chunk of memory that could not be extended: two chunks that are too small.
bool is_end_mark(std::span<const std::byte> bytes, uint64_t address, const GlibcRegion& region) {
    const uint64_t size_bytes = glibc_chunk_head(word_in(bytes, word_bytes)).size_bytes;
    if (region.heap != 0)
        return !region.has_top && size_bytes <= 2 * word_bytes && region.end - address <= end_marks_bytes;
    return size_bytes == 2 * word_bytes && bytes.size() >= end_marks_bytes &&
           glibc_chunk_head(word_in(bytes, 3 * word_bytes)).size_bytes == 2 * word_bytes;
}

}  // namespace

/// The chunk at the beginning of `bytes`; none where it cannot be one.
std::optional<GlibcChunk> GlibcChunkWalk::chunk_at(uint64_t address, std::span<const std::byte> bytes,
                                                   const GlibcRegion& region) const {
    if (bytes.size() < 4 * word_bytes) return std::nullopt;
    const GlibcChunkHead head = glibc_chunk_head(word_in(bytes, word_bytes));
    if (!can_be(head, region.end - address, region.heap != 0)) return std::nullopt;
    const bool is_last = address + head.size_bytes == region.end;
    if (is_last && !region.has_top) return std::nullopt;
    return GlibcChunk{.address = address,
                      .size_bytes = head.size_bytes,
                      .is_in_use = false,
                      .is_top = is_last,
                      .first_word = word_in(bytes, 2 * word_bytes),
                      .second_word = word_in(bytes, 3 * word_bytes)};
}

/// Whether a chunk is free, and how large it is then, is said by its successor as well.
bool GlibcChunkWalk::note_use(GlibcChunk& chunk, std::span<const std::byte> successor) const {
    std::array<std::byte, 2 * word_bytes> apart;
    if (successor.empty()) {
        if (malloc_.memory().read(chunk.address + chunk.size_bytes, apart) != apart.size()) return false;
        successor = apart;
    }
    chunk.is_in_use = glibc_chunk_head(word_in(successor, word_bytes)).is_previous_in_use;
    return chunk.is_in_use || word_in(successor, 0) == chunk.size_bytes;
}

/// The chunks from `begin` on whose successors' heads were read with them, at least one.
std::optional<GlibcChunkWalk::Window> GlibcChunkWalk::read_window(uint64_t begin, const GlibcRegion& region) {
    if (begin >= region.end) return std::nullopt;
    buffer_.resize(std::min(window_bytes, region.end - begin));
    const std::span bytes = std::span<const std::byte>(buffer_).first(malloc_.memory().read(begin, buffer_));
    Window window{.begin = begin, .next = begin, .chunks = {}};
    for (uint64_t offset = 0; offset + 2 * word_bytes <= bytes.size(); offset = window.next - begin) {
        if (is_end_mark(bytes.subspan(offset), begin + offset, region)) {
            window.next = region.end;
            return window;
        }
        // The last head may be all that was read of its chunk.
        if (offset + 4 * word_bytes > bytes.size()) break;
        auto chunk = chunk_at(begin + offset, bytes.subspan(offset), region);
        if (!chunk) return std::nullopt;
        const uint64_t next = offset + chunk->size_bytes;
        const bool has_successor = next + 2 * word_bytes <= bytes.size();
        if (!chunk->is_top && !has_successor && !window.chunks.empty()) break;
        const auto successor = has_successor ? bytes.subspan(next, 2 * word_bytes) : std::span<const std::byte>();
        if (!chunk->is_top && !note_use(*chunk, successor)) return std::nullopt;
        window.chunks.push_back(*chunk);
        window.next = begin + next;
    }
    return window.chunks.empty() ? std::nullopt : std::optional(std::move(window));
}

/// Where to go on when the windows behind an earlier one are given up: what was a chunk may have become part of one
/// before it.
uint64_t GlibcChunkWalk::step_back(uint64_t position, uint64_t failures) {
    if (failures % tries_in_place != 0) return position;
    for (uint64_t steps = failures / tries_in_place; steps > 0 && !unsettled_.empty(); --steps) {
        position = unsettled_.back().begin;
        unsettled_.pop_back();
    }
    return position;
}

bool GlibcChunkWalk::walk(GlibcRegion region, const std::function<bool(std::span<const GlibcChunk>)>& visit) {
    unsettled_.clear();
    uint64_t position = region.begin;
    uint64_t failed_at = 0;  // the furthest place of failures, and how many since it was passed
    uint64_t failures = 0;
    while (position != region.end) {
        if (deadline_ns_ != UINT64_MAX && monotonic_now_ns() > deadline_ns_) return false;
        auto window = read_window(position, region);
        if (!window) {
            ++retries_;
            if (++failures == max_failures) return false;
            failed_at = std::max(failed_at, position);
            position = step_back(position, failures);
            std::this_thread::sleep_for(failures < quick_tries ? between_tries : between_later_tries);
            const auto end = malloc_.end_of(region);
            if (!end) return false;
            region.end = *end;
            continue;
        }
        position = window->next;
        if (position > failed_at) failures = 0;
        unsettled_.push_back(std::move(*window));
        if (unsettled_.size() <= windows_kept) continue;
        if (!visit(unsettled_.front().chunks)) return true;
        unsettled_.pop_front();
    }
    for (const Window& window : unsettled_)
        if (!visit(window.chunks)) return true;
    return true;
}

}  // namespace memtrace
