#include "runtimes/glibc_census.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <thread>

#include "base/clock.hpp"
#include "processes/resident_pages.hpp"
#include "runtimes/glibc_chunks.hpp"
#include "runtimes/glibc_free_lists.hpp"
#include "runtimes/glibc_mapped.hpp"

namespace memtrace {
namespace {

constexpr int tries_of_arena = 5;
constexpr int tries_of_census = 8;
constexpr std::chrono::milliseconds between_tries(2);
constexpr uint64_t page_bytes = ResidentPages::page_bytes;
// malloc_trim leaves a free chunk its head, and the main arena's top a smallest chunk (mtrim, systrim in malloc.c).
constexpr uint64_t head_of_free_chunk = 48;
constexpr uint64_t rest_of_top = 33;
constexpr uint64_t end_marks_bytes = 32;  // of a heap that has been left for a newer one

/// Sums by the size of chunks.
class SizeTable {
  public:
    ChunkSizeSums& at(uint64_t chunk_bytes) {
        const uint64_t place = chunk_bytes / glibc_chunk_alignment;
        ChunkSizeSums& sums = place < small_.size() ? small_[place] : large_[chunk_bytes];
        sums.chunk_bytes = chunk_bytes;
        return sums;
    }
    void add(const SizeTable& other) {
        const auto add_one = [&](const ChunkSizeSums& sums) {
            if (sums.chunk_bytes == 0) return;
            ChunkSizeSums& own = at(sums.chunk_bytes);
            own.in_use += sums.in_use;
            own.free += sums.free;
        };
        std::ranges::for_each(other.small_, add_one);
        for (const auto& [size, sums] : other.large_)
            add_one(sums);
    }
    std::vector<ChunkSizeSums> sorted() const {
        std::vector<ChunkSizeSums> all;
        for (const ChunkSizeSums& sums : small_)
            if (sums.chunk_bytes != 0) all.push_back(sums);
        for (const auto& [size, sums] : large_)
            all.push_back(sums);
        return all;
    }

  private:
    std::vector<ChunkSizeSums> small_ = std::vector<ChunkSizeSums>(4096);
    std::map<uint64_t, ChunkSizeSums> large_;
};

/// One arena's figures.
class ArenaCensus {
  public:
    ArenaCensus(const GlibcMalloc& malloc, const GlibcCacheKeys& keys, ResidentPages& pages, uint64_t address)
        : malloc_(malloc), keys_(keys), pages_(pages), address_(address), fast_bins_(may_have_plain_links()) {}

    /// False when the arena could not be followed: then the figures mean nothing.
    bool take(uint64_t deadline_ns);
    uint64_t torn_reads() const { return walk_torn_reads_; }
    void add_to(GlibcCensus& census, SizeTable& sizes) const;

  private:
    bool may_have_plain_links() const {
        constexpr std::string_view first_mangled = "2.32";
        if (malloc_.version().empty()) return !keys_.is_one_for_all_threads();
        return malloc_.version() < first_mangled;
    }
    void note(const GlibcChunk& chunk);
    void note_free(const GlibcChunk& chunk, ChunkSum& kind);
    void note_top(const GlibcChunk& chunk);
    void take_out_fast();

    const GlibcMalloc& malloc_;
    const GlibcCacheKeys& keys_;
    ResidentPages& pages_;
    uint64_t address_;
    GlibcFastBins fast_bins_;
    GlibcCensus figures_;
    SizeTable sizes_;
    uint64_t walk_torn_reads_ = 0;
};

void ArenaCensus::note_free(const GlibcChunk& chunk, ChunkSum& kind) {
    kind.add(chunk.size_bytes);
    sizes_.at(chunk.size_bytes).free.add(chunk.size_bytes);
    figures_.resident_free_bytes += pages_.bytes(chunk.address, chunk.address + chunk.size_bytes);
}

void ArenaCensus::note_top(const GlibcChunk& chunk) {
    const uint64_t end = chunk.address + chunk.size_bytes;
    figures_.top_bytes += chunk.size_bytes;
    figures_.resident_free_bytes += pages_.bytes(chunk.address, end);
    if (address_ != malloc_.main_arena() || chunk.size_bytes <= rest_of_top) return;
    const uint64_t whole = (chunk.size_bytes - rest_of_top) & ~(page_bytes - 1);
    figures_.trimmable_bytes += pages_.bytes_of_whole_pages(end - whole, end);
}

void ArenaCensus::note(const GlibcChunk& chunk) {
    if (chunk.is_top) return note_top(chunk);
    if (!chunk.is_in_use) {
        note_free(chunk, figures_.binned);
        figures_.trimmable_bytes +=
            pages_.bytes_of_whole_pages(chunk.address + head_of_free_chunk, chunk.address + chunk.size_bytes);
        return;
    }
    if (keys_.is_cached(chunk)) return note_free(chunk, figures_.thread_cached);
    figures_.in_use.add(chunk.size_bytes);
    sizes_.at(chunk.size_bytes).in_use.add(chunk.size_bytes);
    fast_bins_.note_chunk(chunk);
}

void ArenaCensus::take_out_fast() {
    const std::vector<GlibcChunk> members = fast_bins_.members();
    figures_.has_all_fast = fast_bins_.has_all();
    for (const GlibcChunk& chunk : members) {
        ChunkSum& in_use = sizes_.at(chunk.size_bytes).in_use;
        for (ChunkSum* sum : {&in_use, &figures_.in_use}) {
            --sum->chunks;
            sum->size_bytes -= chunk.size_bytes;
        }
        note_free(chunk, figures_.fast);
    }
}

bool ArenaCensus::take(uint64_t deadline_ns) {
    const auto before = malloc_.arena(address_);
    const auto regions = malloc_.regions(address_);
    if (!before || !regions) return false;
    fast_bins_.note_heads(*before);
    GlibcChunkWalk walk(malloc_, deadline_ns);
    for (const GlibcRegion& region : *regions) {
        figures_.head_bytes += malloc_.head_bytes(region) + (region.has_top ? 0 : end_marks_bytes);
        pages_.refresh();
        figures_.resident_bytes += pages_.bytes(region.heap != 0 ? region.heap : region.begin, region.end);
        const bool is_whole = walk.walk(region, [&](std::span<const GlibcChunk> chunks) {
            for (const GlibcChunk& chunk : chunks)
                note(chunk);
            return true;
        });
        walk_torn_reads_ = walk.retries();
        if (!is_whole) return false;
    }
    const auto after = malloc_.arena(address_);
    if (!after) return false;
    fast_bins_.note_heads(*after);
    take_out_fast();
    figures_.system_bytes = after->system_bytes;
    return true;
}

void ArenaCensus::add_to(GlibcCensus& census, SizeTable& sizes) const {
    census.in_use += figures_.in_use;
    census.thread_cached += figures_.thread_cached;
    census.fast += figures_.fast;
    census.binned += figures_.binned;
    census.top_bytes += figures_.top_bytes;
    census.head_bytes += figures_.head_bytes;
    census.resident_free_bytes += figures_.resident_free_bytes;
    census.resident_bytes += figures_.resident_bytes;
    census.has_all_fast = census.has_all_fast && figures_.has_all_fast;
    census.trimmable_bytes += figures_.trimmable_bytes;
    census.system_bytes += figures_.system_bytes;
    const uint64_t found = figures_.in_use.size_bytes + figures_.free_bytes() + figures_.head_bytes;
    if (figures_.system_bytes > found) census.not_found_bytes += figures_.system_bytes - found;
    sizes.add(sizes_);
}

void add_mapped_sizes(const GlibcMalloc& malloc, pid_t pid, GlibcCensus& census) {
    const auto mappings = read_mappings(pid);
    if (!mappings) return;
    const std::vector<uint64_t> chunks = find_mapped_chunks(malloc, *mappings, census.mapped.chunks);
    census.mapped_chunks_sized = chunks.size();
    SizeTable sizes;
    for (const uint64_t chunk_bytes : chunks)
        sizes.at(chunk_bytes).in_use.add(chunk_bytes);
    for (ChunkSizeSums& sums : sizes.sorted()) {
        sums.is_mapped = true;
        census.sizes.push_back(sums);
    }
}

bool is_over(uint64_t deadline_ns) {
    return deadline_ns != UINT64_MAX && monotonic_now_ns() > deadline_ns;
}

Error too_quick(pid_t pid) {
    return {fmt::format("process {}", pid), "its heap changes too quickly to be read, or it has ended"};
}

}  // namespace

Result<GlibcCensus> take_glibc_census(pid_t pid) {
    for (int tries = 1;; ++tries) {
        const auto malloc = GlibcMalloc::find(pid);
        if (!malloc) return malloc.error();
        auto census = take_glibc_census(*malloc, pid);
        if (census || tries == tries_of_census) return census;
        std::this_thread::sleep_for(between_tries);
    }
}

Result<GlibcCensus> take_glibc_census(const GlibcMalloc& malloc, pid_t pid, const GlibcCensusLimits& limits) {
    auto pages = ResidentPages::open(pid);
    if (!pages) return std::move(pages).error();
    const auto keys = GlibcCacheKeys::find(malloc, limits.deadline_ns);
    const auto arenas = malloc.arenas();
    if (!keys || !arenas) return too_quick(pid);
    GlibcCensus census;
    census.version = malloc.version();
    census.arenas = arenas->size();
    SizeTable sizes;
    for (const uint64_t address : *arenas) {
        bool is_whole = false;
        for (int tries = 0; tries < tries_of_arena && !is_whole && !is_over(limits.deadline_ns); ++tries) {
            ArenaCensus arena(malloc, *keys, *pages, address);
            is_whole = arena.take(limits.deadline_ns);
            census.torn_reads += arena.torn_reads();
            if (is_whole) arena.add_to(census, sizes);
        }
        if (!is_whole) return too_quick(pid);
    }
    census.sizes = sizes.sorted();
    if (const auto parameters = malloc.parameters()) {
        census.has_mapped = true;
        census.mapped = {.chunks = parameters->mapped_blocks, .size_bytes = parameters->mapped_bytes};
        if (limits.finds_mapped_sizes) add_mapped_sizes(malloc, pid, census);
    }
    return census;
}

}  // namespace memtrace
