// What is known of glibc's malloc, and how it is found, on memory that this process made up: as glibc has it, and as an
// enemy would.
#include <chrono>
#include <thread>

#include "glibc_image.hpp"
#include "runtimes/glibc_layout.hpp"

using namespace memtrace;

namespace {

/// malloc_par from its counters on; glibc 2.35 and later have a gap behind them.
std::vector<uint64_t> parameters(uint64_t heap_begin, bool has_gap) {
    std::vector<uint32_t> words = {has_gap ? 0u : 3u, has_gap ? 3u : 65536u, has_gap ? 65536u : 5u, has_gap ? 5u : 1u};
    if (has_gap) words.insert(words.end(), {1, 0});
    std::vector<uint64_t> bytes(words.size() / 2);
    std::memcpy(bytes.data(), words.data(), words.size() * sizeof words.front());
    bytes.insert(bytes.end(), {3 * 200'704, 5 * 200'704, heap_begin, 64, 1032, 7, 0});
    bytes.insert(bytes.begin(), {131'072, 131'072, 131'072, 8, 0});
    return bytes;
}

}  // namespace

TEST_CASE("an arena is known by its empty bins", "[glibc]") {
    GlibcImage image(1 << 16);
    image.add(64, true);
    const GlibcMalloc malloc = image.finish();
    std::vector<std::byte> data(512);
    const auto bytes = image.arena_bytes();
    data.insert(data.end(), bytes.begin(), bytes.end());
    const auto found = find_glibc_arena(data, image.arena() - 512);
    REQUIRE(found);
    CHECK(*found == image.arena());
    CHECK(malloc.arenas() == std::vector{image.arena()});
    SECTION("elsewhere its bins do not point to themselves") {
        CHECK(!find_glibc_arena(data, image.arena()));
    }
    SECTION("cut short") {
        CHECK(!find_glibc_arena(std::span(data).first(data.size() - 64), image.arena() - 512));
    }
    SECTION("with flags that there are not") {
        image.set_arena(0, uint64_t{8} << 32);
        CHECK(!parse_glibc_arena(image.arena_bytes(), image.arena()));
    }
    SECTION("bins with one end, more than a thread can be at work on") {
        image.set_arena(112 + 16 * 5, image.begin());
        image.set_arena(112 + 16 * 6, image.begin());
        CHECK(parse_glibc_arena(image.arena_bytes(), image.arena()));
        image.set_arena(112 + 16 * 7, image.begin());
        CHECK(!parse_glibc_arena(image.arena_bytes(), image.arena()));
    }
    SECTION("more from the system than ever") {
        image.set_arena(2184, 1 << 20);
        CHECK(!parse_glibc_arena(image.arena_bytes(), image.arena()));
    }
}

TEST_CASE("a ring of arenas that does not close is not followed for ever", "[glibc]") {
    GlibcImage image(1 << 16);
    GlibcImage other(1 << 16);
    other.finish();
    image.set_arena(2160, other.arena());
    const GlibcMalloc malloc = image.finish();
    CHECK(!malloc.arenas());
    other.set_arena(2160, 0x10);
    CHECK(!malloc.arenas());
}

TEST_CASE("the end of a heap that is being given back is waited for", "[glibc]") {
    GlibcImage image(1 << 16);
    image.add(64, true);
    const GlibcMalloc malloc = image.finish();
    // As systrim leaves it until its thread has a processor again: the heap has ended already, the arena has not.
    image.set_arena(2192, 1 << 17);
    image.set_arena(2184, (1 << 16) + 4096);
    std::thread thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        image.set_arena(2184, 1 << 16);
    });
    const auto regions = malloc.regions(malloc.main_arena());
    thread.join();
    REQUIRE(regions);
    CHECK(regions->front().end == image.end());
}

TEST_CASE("a thread's arena whose top is in no heap has no regions", "[glibc]") {
    GlibcImage main(1 << 16);
    const GlibcMalloc malloc = main.finish();
    const std::unique_ptr<uint64_t, void (*)(void*)> heap(
        static_cast<uint64_t*>(std::aligned_alloc(glibc_heap_alignment, glibc_heap_alignment)), &std::free);
    std::fill_n(heap.get(), 512, 0);
    uint64_t* arena = heap.get() + 6;  // behind the heap's head
    const auto address = reinterpret_cast<uint64_t>(arena);
    for (size_t bin = 0; bin < 127; ++bin)
        arena[14 + 2 * bin] = arena[15 + 2 * bin] = address + 96 + 16 * bin;
    arena[12] = 0x1000;         // top
    arena[270] = main.arena();  // next
    REQUIRE(malloc.arena(address));
    CHECK(!malloc.regions(address));
}

TEST_CASE("the parameters of malloc are known by their relations", "[glibc]") {
    const bool has_gap = GENERATE(false, true);
    auto words = parameters(0x5000'1000, has_gap);
    const auto find = [&] { return find_glibc_parameters(std::as_bytes(std::span(words)), 0x5000'0000, 0x5100'0000); };
    const auto found = find();
    REQUIRE(found);
    CHECK(found->mapped_blocks == 3);
    CHECK(found->mapped_bytes == 3 * 200'704);
    CHECK(found->heap_begin == 0x5000'1000);
    SECTION("of another heap") {
        words[words.size() - 5] = 0x6000'0000;
        CHECK(!find());
    }
    SECTION("none given back, and less than none used") {
        words[words.size() - 6] = 2 * 200'704;
        CHECK(!find());
    }
    SECTION("caches that do not fit their largest block") {
        words[words.size() - 3] = 500;
        CHECK(!find());
    }
}

TEST_CASE("the blocks of a chunk", "[glibc]") {
    CHECK(glibc_block_sizes(32).least == 0);
    CHECK(glibc_block_sizes(32).most == 24);
    CHECK(glibc_block_sizes(208).least == 185);
    CHECK(glibc_block_sizes(208).most == 200);
}

TEST_CASE("the version that a glibc says of itself", "[glibc]") {
    CHECK(find_glibc_version(
              "x GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36.\nCopyright") == 36u);
    CHECK(find_glibc_version("GNU C Library (GNU libc) development release version 2.41.9000.") == 41u);
    CHECK(!find_glibc_version("GNU C Library (an old one) release version 1.09."));
    CHECK(!find_glibc_version(""));
}

TEST_CASE("a thread's cache is known by its counts", "[glibc]") {
    std::array<uint64_t, 80> block{};
    block[0] = 2;  // of 32 bytes
    block[16] = 0x7000;
    const auto parse = [&] { return parse_glibc_thread_cache(std::as_bytes(std::span(block))); };
    REQUIRE(parse());
    CHECK(parse()->counts[0] == 2);
    CHECK(parse()->first_blocks[0] == 0x7000);
    block[17] = block[18] = 0x7010;
    CHECK(!parse());
    block[17] = block[18] = 0;
    block[20] = 0x7001;
    CHECK(!parse());
}

TEST_CASE("the brk heap of a forked process is several mappings", "[glibc]") {
    const auto mappings = parse_mappings(
        "400000-401000 r-xp 00000000 fe:00 1    /bin/x\n"
        "5000000-5100000 rw-p 00000000 00:00 0    [heap]\n"
        "5100000-5300000 rw-p 00000000 00:00 0    [heap]\n"
        "7f0000000000-7f0000100000 rw-p 00000000 00:00 0\n");
    REQUIRE(mappings);
    CHECK(find_brk_heap(*mappings).begin == 0x5000000);
    CHECK(find_brk_heap(*mappings).end == 0x5300000);
    CHECK(find_brk_heap({}).end == 0);
}
