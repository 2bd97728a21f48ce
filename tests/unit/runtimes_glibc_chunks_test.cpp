// The walk through a heap's chunks and the lists of its free blocks, on memory that this process made up.
#include "glibc_image.hpp"
#include "runtimes/glibc_chunks.hpp"
#include "runtimes/glibc_free_lists.hpp"

using namespace memtrace;

namespace {

struct Walked {
    bool is_whole = false;
    std::vector<GlibcChunk> chunks;
    uint64_t retries = 0;
};

Walked walk(const GlibcMalloc& malloc, const std::function<void()>& at_first_visit = {}) {
    Walked walked;
    const auto regions = malloc.regions(malloc.main_arena());
    REQUIRE(regions);
    REQUIRE(regions->size() == 1);
    GlibcChunkWalk chunk_walk(malloc);
    walked.is_whole = chunk_walk.walk(regions->front(), [&](std::span<const GlibcChunk> chunks) {
        if (walked.chunks.empty() && at_first_visit) at_first_visit();
        walked.chunks.insert(walked.chunks.end(), chunks.begin(), chunks.end());
        return true;
    });
    walked.retries = chunk_walk.retries();
    return walked;
}

uint64_t mangled(uint64_t link, uint64_t chunk) {
    return link ^ (chunk + 16) >> 12;
}

}  // namespace

TEST_CASE("chunks are found one behind the other", "[glibc]") {
    GlibcImage image(1 << 20);
    image.add(64, true, {7, 8});
    image.add(700'000, false);
    image.add(48, true);
    const Walked walked = walk(image.finish());
    REQUIRE(walked.is_whole);
    REQUIRE(walked.chunks.size() == 4);
    CHECK(walked.chunks[0].is_in_use);
    CHECK(walked.chunks[0].first_word == 7);
    CHECK(walked.chunks[0].second_word == 8);
    CHECK(!walked.chunks[1].is_in_use);
    CHECK(walked.chunks[1].size_bytes == 700'000);
    CHECK(walked.chunks[2].is_in_use);
    CHECK(walked.chunks[3].is_top);
    CHECK(walked.chunks[3].address + walked.chunks[3].size_bytes == image.end());
    CHECK(walked.retries == 0);
}

TEST_CASE("a chunk that merges with the one before it while the walk is there", "[glibc]") {
    constexpr uint64_t chunk_bytes = 1024;
    constexpr size_t count = 20 * 256;
    GlibcImage image(chunk_bytes * (count + 1));
    std::vector<uint64_t> chunks;
    for (size_t i = 0; i < count; ++i)
        chunks.push_back(image.add(chunk_bytes, true));
    const GlibcMalloc malloc = image.finish();
    const auto merge = [&] {
        // The first chunk of the 18th window of 256 KiB, whose last chunk always has to wait for its successor.
        auto* chunk = reinterpret_cast<uint64_t*>(chunks[17 * 255]);
        chunk[-128 + 1] = 2 * chunk_bytes | 1;
        chunk[1] = 0xdeadbeef;
        chunk[128] = 2 * chunk_bytes;
        chunk[128 + 1] = chunk_bytes;
    };
    const Walked walked = walk(malloc, merge);
    REQUIRE(walked.is_whole);
    CHECK(walked.retries > 0);
    CHECK(walked.chunks.size() == count);  // two are one, and the top
    uint64_t sum = 0;
    size_t free_chunks = 0;
    for (const GlibcChunk& chunk : walked.chunks) {
        sum += chunk.size_bytes;
        if (!chunk.is_in_use && !chunk.is_top) ++free_chunks;
    }
    CHECK(sum == image.end() - image.begin());
    CHECK(free_chunks == 1);
}

TEST_CASE("a heap that cannot be is given up", "[glibc]") {
    GlibcImage image(1 << 16);
    image.add(64, true);
    const uint64_t broken = image.add(256, true);
    const uint64_t free_chunk = image.add(128, false);
    image.add(64, true);
    const GlibcMalloc malloc = image.finish();
    SECTION("a size that is none") {
        reinterpret_cast<uint64_t*>(broken)[1] = 0x88 | 1;
    }
    SECTION("a size beyond the heap") {
        reinterpret_cast<uint64_t*>(broken)[1] = (1 << 20) | 1;
    }
    SECTION("a chunk of nothing") {
        reinterpret_cast<uint64_t*>(broken)[1] = 1;
    }
    SECTION("a chunk of a thread's arena") {
        reinterpret_cast<uint64_t*>(broken)[1] |= 4;
    }
    SECTION("a free chunk that its successor has otherwise") {
        reinterpret_cast<uint64_t*>(free_chunk)[16] = 64;
    }
    const Walked walked = walk(malloc);
    CHECK(!walked.is_whole);
    CHECK(walked.chunks.empty());
}

TEST_CASE("the blocks in fast bins are free", "[glibc]") {
    const bool is_mangled = GENERATE(true, false);
    GlibcImage image(1 << 16);
    std::vector<uint64_t> chunks;
    for (int i = 0; i < 4; ++i)
        chunks.push_back(image.add(64, true));
    const auto link = [&](size_t from, uint64_t to) {
        reinterpret_cast<uint64_t*>(chunks[from])[2] = is_mangled ? mangled(to, chunks[from]) : to;
    };
    link(0, chunks[2]);
    link(2, 0);
    link(3, chunks[1]);  // an old link of a block that is in use again
    image.set_arena(16 + 8 * 2, chunks[0]);
    const GlibcMalloc malloc = image.finish();
    GlibcFastBins bins(!is_mangled);
    for (const GlibcChunk& chunk : walk(malloc).chunks)
        if (chunk.is_in_use) bins.note_chunk(chunk);
    bins.note_heads(*malloc.arena(image.arena()));
    SECTION("from its heads on") {}
    SECTION("a list that is a ring ends") {
        link(2, chunks[0]);
    }
    const auto members = bins.members();
    REQUIRE(members.size() == 2);
    CHECK(members[0].address == chunks[0]);
    CHECK(members[1].address == chunks[2]);
}

TEST_CASE("more blocks that could be in fast bins than memory does for are not noted, and it is said", "[glibc]") {
    GlibcFastBins bins(false);
    constexpr uint64_t first = 1 << 30;
    GlibcArena arena;
    arena.fast_bins[0] = first;
    bins.note_heads(arena);
    const auto note = [&](uint64_t index) {
        const uint64_t address = first + 32 * index;
        bins.note_chunk({.address = address, .size_bytes = 32, .first_word = mangled(0, address)});
    };
    for (uint64_t index = 0; index < GlibcFastBins::max_candidates; ++index)
        note(index);
    CHECK(bins.has_all());
    note(GlibcFastBins::max_candidates);
    CHECK(!bins.has_all());
    const auto members = bins.members();
    REQUIRE(members.size() == 1);
    CHECK(members[0].address == first);
    CHECK(members[0].size_bytes == 32);
}

TEST_CASE("a walk ends when its time is up", "[glibc]") {
    GlibcImage image(1 << 16);
    image.add(64, true);
    const GlibcMalloc malloc = image.finish();
    const auto regions = malloc.regions(malloc.main_arena());
    REQUIRE(regions);
    GlibcChunkWalk chunk_walk(malloc, 1);
    CHECK(!chunk_walk.walk(regions->front(), [](std::span<const GlibcChunk>) { return true; }));
    CHECK(chunk_walk.retries() == 0);
    CHECK(!GlibcCacheKeys::find(malloc, 1));
}

TEST_CASE("a block in a thread's cache is known by its key", "[glibc]") {
    const uint64_t key = 0x1234'5678'9abc'def1;
    GlibcImage image(1 << 16);
    const uint64_t cache = image.add(glibc_thread_cache_chunk_bytes, true);
    const uint64_t cached = image.add(32, true, {0, key});
    const uint64_t other = image.add(48, true, {0, key});
    image.add(32, true, {0, 5});
    image.add(4096, true, {0, key});  // too large for a cache
    auto* block = reinterpret_cast<uint64_t*>(cache) + 2;
    block[0] = 1 | 1 << 16;
    block[16] = cached + 16;
    block[17] = other + 16;
    const GlibcMalloc malloc = image.finish();
    const auto keys = GlibcCacheKeys::find(malloc);
    REQUIRE(keys);
    CHECK(keys->is_one_for_all_threads());
    const auto chunks = walk(malloc).chunks;
    REQUIRE(chunks.size() == 6);
    CHECK(!keys->is_cached(chunks[0]));
    CHECK(keys->is_cached(chunks[1]));
    CHECK(keys->is_cached(chunks[2]));
    CHECK(!keys->is_cached(chunks[3]));
    CHECK(!keys->is_cached(chunks[4]));
}
