#include "runtimes/glibc_free_lists.hpp"

#include <algorithm>
#include <array>

namespace memtrace {
namespace {

constexpr uint64_t word_bytes = 8;
constexpr uint64_t block_offset = 16;  // of a block in its chunk
constexpr unsigned mangle_shift = 12;
/// Addresses of one process's heaps agree in the bits above.
constexpr unsigned heap_shift = 40;
/// Of lists that have the same key: no other is looked at.
constexpr uint64_t enough_votes = 4;
/// What hostile memory can cost: threads whose caches are looked into, and different keys.
constexpr size_t max_caches = 1 << 16;
constexpr size_t max_keys = 1 << 16;

bool is_link(uint64_t link, uint64_t from) {
    return link == 0 || (link % glibc_chunk_alignment == 0 && link >> heap_shift == from >> heap_shift);
}

}  // namespace

/// Counts what the first blocks of one cache's lists have for a key.
void GlibcCacheKeys::look_into(const GlibcMalloc& malloc, uint64_t block) {
    if (++caches_looked_into_ > max_caches) return;
    std::array<std::byte, glibc_thread_cache_chunk_bytes - block_offset> bytes;
    if (malloc.memory().read(block, bytes) != bytes.size()) return;
    const auto cache = parse_glibc_thread_cache(bytes);
    if (!cache) return;
    for (size_t i = 0; i < cache->counts.size(); ++i) {
        const uint64_t first = cache->first_blocks[i];
        if (first == 0) continue;
        const auto words = malloc.memory().read_value<std::array<uint64_t, 3>>(first - word_bytes);
        const uint64_t chunk_bytes = glibc_smallest_chunk_bytes + i * glibc_chunk_alignment;
        if (!words || glibc_chunk_head((*words)[0]).size_bytes != chunk_bytes) continue;
        // The thread may have taken the block meanwhile, and written to it.
        const uint64_t link = (*words)[1];
        const uint64_t key = (*words)[2];
        if (key == 0 || (!is_link(link, first) && !is_link(link ^ first >> mangle_shift, first))) continue;
        if (key == block) keys_.insert(block);
        if (key == block) continue;
        ++all_votes_;
        if (votes_.size() < max_keys || votes_.contains(key)) ++votes_[key];
    }
}

/// The number that is in nearly all lists.
bool GlibcCacheKeys::has_common_key(uint64_t fewest_votes) {
    if (!keys_.empty() || votes_.empty()) return false;
    const auto most = std::ranges::max_element(votes_, {}, [](const auto& vote) { return vote.second; });
    if (most->second < fewest_votes || 3 * most->second < 2 * all_votes_) return false;
    keys_.insert(most->first);
    is_one_for_all_threads_ = true;
    return true;
}

std::optional<GlibcCacheKeys> GlibcCacheKeys::find(const GlibcMalloc& malloc, uint64_t deadline_ns) {
    const auto arenas = malloc.arenas();
    if (!arenas) return std::nullopt;
    GlibcCacheKeys keys;
    GlibcChunkWalk walk(malloc, deadline_ns);
    const auto visit = [&](std::span<const GlibcChunk> chunks) {
        for (const GlibcChunk& chunk : chunks)
            if (chunk.is_in_use && chunk.size_bytes == glibc_thread_cache_chunk_bytes)
                keys.look_into(malloc, chunk.address + block_offset);
        return !keys.has_common_key(enough_votes);
    };
    for (const uint64_t arena : *arenas) {
        const auto regions = malloc.regions(arena);
        if (!regions) return std::nullopt;
        for (const GlibcRegion& region : *regions)
            if (!keys.is_one_for_all_threads_ && !walk.walk(region, visit)) return std::nullopt;
    }
    keys.has_common_key(1);
    return keys;
}

void GlibcFastBins::note_heads(const GlibcArena& arena) {
    for (const uint64_t head : arena.fast_bins)
        if (head != 0) heads_.push_back(head);
}

void GlibcFastBins::note_chunk(const GlibcChunk& chunk) {
    if (chunk.size_bytes > largest_bytes) return;
    const uint64_t own = chunk.address + block_offset;
    const bool may_be_member =
        is_link(chunk.first_word ^ own >> mangle_shift, own) || (may_be_plain_ && is_link(chunk.first_word, own));
    if (!may_be_member) return;
    has_all_ = has_all_ && candidates_.size() < max_candidates;
    if (has_all_) candidates_.push_back({chunk.address | chunk.size_bytes / glibc_chunk_alignment, chunk.first_word});
}

const GlibcFastBins::Candidate* GlibcFastBins::find(uint64_t address) const {
    const auto found = std::ranges::lower_bound(candidates_, address, {}, &Candidate::address);
    return found != candidates_.end() && found->address() == address ? &*found : nullptr;
}

std::vector<GlibcChunk> GlibcFastBins::members() {
    std::ranges::sort(candidates_, {}, &Candidate::address);
    std::vector<GlibcChunk> found;
    std::unordered_set<uint64_t> seen;
    for (uint64_t address : heads_) {
        for (const Candidate* chunk = find(address); chunk != nullptr; chunk = find(address)) {
            if (!seen.insert(address).second) break;
            found.push_back({.address = address, .size_bytes = chunk->size_bytes(), .is_in_use = true});
            const uint64_t plain = chunk->first_word;
            const uint64_t mangled = plain ^ (address + block_offset) >> mangle_shift;
            address = find(mangled) != nullptr ? mangled : plain;
        }
    }
    std::ranges::sort(found, {}, &GlibcChunk::address);
    return found;
}

}  // namespace memtrace
