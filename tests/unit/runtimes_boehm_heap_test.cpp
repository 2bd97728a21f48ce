// The reader of a collector's heap on memory that this process made up: as libgc has it, and as an enemy would.
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>

#include "catch.hpp"
#include "runtimes/boehm_heap.hpp"

using namespace memtrace;

namespace {

constexpr uint64_t page_bytes = 4096;

struct BottomIndex {
    std::array<uint64_t, 1024> headers{};
    uint64_t unused[2] = {};
    uint64_t key = 0;
    uint64_t link = 0;
};

struct Header {
    uint64_t unused[2] = {};
    uint64_t block = 0;
    uint8_t kind = 1;
    uint8_t flags = 0;
    uint8_t padding[6] = {};
    uint64_t object_bytes = 0;
    uint64_t unused_behind[3] = {};
    std::array<uint8_t, 256> marks{};
};

/// A heap of pages in this process.
struct MadeUpHeap {
    std::array<uint64_t, 2048> top{};
    BottomIndex bottom;
    Header header;
    uint64_t collections = 7;
    int32_t mark_state = 0;
    uint8_t* pages = static_cast<uint8_t*>(std::aligned_alloc(1 << 22, 1 << 22));

    MadeUpHeap() {
        std::memset(pages, 0, 1 << 22);
        bottom.key = address() >> 22;
        top[bottom.key & 2047] = reinterpret_cast<uint64_t>(&bottom);
        header.block = address();
        bottom.headers[0] = reinterpret_cast<uint64_t>(&header);
    }
    MadeUpHeap(const MadeUpHeap&) = delete;
    MadeUpHeap& operator=(const MadeUpHeap&) = delete;
    ~MadeUpHeap() { std::free(pages); }

    uint64_t address() const { return reinterpret_cast<uint64_t>(pages); }
    BoehmHeap open() const {
        auto memory = TargetMemory::open(getpid());
        REQUIRE(memory);
        const auto at = [](const auto& value) { return reinterpret_cast<uint64_t>(&value); };
        return BoehmHeap(std::move(*memory), {.top_index = at(top),
                                              .bottom_key = offsetof(BottomIndex, key),
                                              .bottom_link = offsetof(BottomIndex, link),
                                              .header_block = offsetof(Header, block),
                                              .header_kind = offsetof(Header, kind),
                                              .header_flags = offsetof(Header, flags),
                                              .header_size = offsetof(Header, object_bytes),
                                              .header_marks = offsetof(Header, marks),
                                              .collection_counter = at(collections),
                                              .allocated = {at(collections), at(collections)},
                                              .mark_state = at(mark_state)});
    }
    std::vector<MarkState> states(std::vector<CollectedBlock> blocks) const {
        auto found = open().states(blocks);
        REQUIRE(found);
        return *found;
    }
};

uint64_t count_of(const BoehmHeap& heap) {
    uint64_t count = 0;
    REQUIRE(heap.census([&](const CensusObject&) { ++count; }));
    return count;
}

}  // namespace

TEST_CASE("marks tell live objects from dead ones", "[runtimes]") {
    MadeUpHeap heap;
    heap.header.object_bytes = 48;
    heap.header.marks[0] = 1;
    heap.header.marks[96 >> 4] = 1;
    const uint64_t page = heap.address();
    CHECK(heap.states({{page, 40}, {page + 48, 40}, {page + 96, 48}, {page + 100, 4}, {page + 96, 49}}) ==
          std::vector{MarkState::marked, MarkState::unmarked, MarkState::marked, MarkState::no_object,
                      MarkState::no_object});
    CHECK(heap.states({{page + 100, 4, true}}) == std::vector{MarkState::marked});
    CHECK(heap.states({{page + 100, 48, true}}) == std::vector{MarkState::no_object});
    heap.header.flags = 4;
    CHECK(heap.states({{page, 40}}) == std::vector{MarkState::no_object});
}

TEST_CASE("a census of more blocks than can be is cut, and says so", "[runtimes]") {
    MadeUpHeap heap;
    heap.header.object_bytes = 4096;
    heap.header.marks[0] = 1;
    // All at one header, which is of another block but for the first.
    heap.bottom.headers.fill(reinterpret_cast<uint64_t>(&heap.header));
    uint64_t count = 0;
    const auto figures = heap.open().census([&](const CensusObject&) { ++count; }, 100);
    REQUIRE(figures);
    CHECK(count == 1);
    CHECK(figures->blocks == 100);
    CHECK(figures->blocks_not_read == 100);
}

TEST_CASE("a large object is found from each of its pages, and only its start is an object", "[runtimes]") {
    MadeUpHeap heap;
    heap.header.object_bytes = 3 * page_bytes;
    heap.header.marks[0] = 1;
    heap.bottom.headers[1] = 1;
    heap.bottom.headers[2] = 2;
    const uint64_t page = heap.address();
    CHECK(heap.states({{page, 9000}, {page + page_bytes, 10}, {page + 2 * page_bytes, 10, true}}) ==
          std::vector{MarkState::marked, MarkState::no_object, MarkState::marked});
    CHECK(count_of(heap.open()) == 1);
}

TEST_CASE("what no page of the heap is, is no object", "[runtimes]") {
    MadeUpHeap heap;
    heap.header.object_bytes = 16;
    CHECK(heap.states({{0, 1}, {0x1000, 1}, {heap.address() + page_bytes, 1}, {UINT64_MAX, 1}, {1ull << 62, 8}}) ==
          std::vector(5, MarkState::no_object));
}

TEST_CASE("nothing is said while a collection is under way", "[runtimes]") {
    MadeUpHeap heap;
    heap.header.object_bytes = 16;
    heap.mark_state = 2;
    CHECK(!heap.open().states({}));
    CHECK(!heap.open().census([](const CensusObject&) {}));
    CHECK(heap.open().collections() == 7);
}

TEST_CASE("chains in a circle, wild pointers and odd sizes end", "[runtimes]") {
    MadeUpHeap heap;
    heap.header.object_bytes = 16;
    const uint64_t other_key = heap.address() ^ (1ull << 40);  // of the same hash
    SECTION("a chain that leads back") {
        heap.bottom.link = reinterpret_cast<uint64_t>(&heap.bottom);
    }
    SECTION("a chain that leads nowhere") {
        heap.bottom.link = 0xdead000;
    }
    SECTION("an index that is not there") {
        heap.top.fill(0xdead000);
    }
    SECTION("headers that are not there") {
        heap.bottom.headers.fill(0xdead000);
    }
    SECTION("links that lead before the heap") {
        heap.bottom.headers.fill(4095);
    }
    SECTION("links in a circle") {
        heap.bottom.headers.fill(1);
    }
    SECTION("objects of no size") {
        heap.header.object_bytes = 0;
    }
    SECTION("objects of 1 byte") {
        heap.header.object_bytes = 1;
    }
    SECTION("objects of all bytes") {
        heap.header.object_bytes = UINT64_MAX;
    }
    SECTION("a block that is not there") {
        heap.header.block = 0xdead000;
    }
    SECTION("a block that is no page") {
        heap.header.block += 8;
    }
    std::vector<CollectedBlock> asked;
    for (uint64_t offset = 0; offset < 1 << 22; offset += page_bytes)
        for (const uint64_t address : {heap.address() + offset, other_key + offset * 1024})
            asked.push_back({address, UINT64_MAX, offset % 8192 == 0});
    // None where the chain has no end.
    CHECK((heap.open().states(asked).has_value() || heap.bottom.link != 0));
    CHECK(count_of(heap.open()) <= 256);
}

TEST_CASE("first words end where the memory ends", "[runtimes]") {
    MadeUpHeap heap;
    const uint32_t type = 172;
    std::memcpy(heap.pages + 4092, &type, sizeof type);
    const std::vector<uint64_t> asked = {8, heap.address(), heap.address() + 4092, heap.address() + 4094};
    CHECK(heap.open().first_words(asked) == std::vector<uint32_t>{0, 0, 172, 0});
}
