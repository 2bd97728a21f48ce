// How resident memory is split: who mapped it, what was there before, and what the kernel alone knows.
#include "catch.hpp"
#include "heap/residency.hpp"

using namespace memtrace;

namespace {

constexpr uint64_t page = 4096;

ResidentRange range(uint64_t first_page, uint64_t pages, uint64_t resident_pages, MemoryKind kind) {
    return {first_page * page, (first_page + pages) * page, resident_pages * page, resident_pages * page / 2, kind};
}

KnownRange known(uint64_t first_page, uint64_t pages, MappingUse use) {
    return {first_page * page, (first_page + pages) * page, use, MappingBacking::anonymous};
}

uint64_t pages_of(const MemoryByKind& memory, MemoryKind kind) {
    return memory.rss_bytes[static_cast<size_t>(kind)] / page;
}

/// Every page is there.
uint64_t all(uint64_t start, uint64_t end) {
    return end - start;
}

uint64_t must_not_be_asked(uint64_t, uint64_t) {
    FAIL("one kind needs no look at pages");
    return 0;
}

}  // namespace

TEST_CASE("what the kernel says of stacks, files and shared memory needs no one else", "[heap]") {
    const std::vector<ResidentRange> now = {range(0, 10, 1, MemoryKind::files), range(10, 10, 2, MemoryKind::shared),
                                            range(20, 10, 3, MemoryKind::stacks)};
    const MemoryByKind memory =
        split_memory(now, std::vector{known(0, 30, MappingUse::program)}, {}, must_not_be_asked);
    CHECK(pages_of(memory, MemoryKind::files) == 1);
    CHECK(pages_of(memory, MemoryKind::shared) == 2);
    CHECK(pages_of(memory, MemoryKind::stacks) == 3);
    CHECK(memory.rss_sum() == 6 * page);
    CHECK(memory.pss_sum() == 3 * page);
}

TEST_CASE("a mapping that the kernel made of several is split by its pages", "[heap]") {
    const std::vector<ResidentRange> now = {range(0, 100, 50, MemoryKind::unknown)};
    const std::vector<KnownRange> ranges = {known(10, 20, MappingUse::program), known(40, 10, MappingUse::allocator),
                                            known(50, 5, MappingUse::stack)};
    const auto half = [](uint64_t start, uint64_t end) { return (end - start) / 2; };
    const MemoryByKind memory = split_memory(now, ranges, {}, half);
    CHECK(pages_of(memory, MemoryKind::mappings) == 10);
    CHECK(pages_of(memory, MemoryKind::heap) == 5);
    CHECK(memory.rss_bytes[static_cast<size_t>(MemoryKind::stacks)] == 5 * page / 2);
    CHECK(memory.rss_sum() == 50 * page);
    CHECK(memory.pss_sum() == 25 * page);
}

TEST_CASE("a mapping of one kind is taken as the kernel says, without a look at its pages", "[heap]") {
    const std::vector<ResidentRange> now = {range(0, 100, 7, MemoryKind::unknown), range(200, 10, 3, MemoryKind::heap),
                                            range(300, 10, 4, MemoryKind::unknown)};
    const std::vector<KnownRange> ranges = {known(0, 60, MappingUse::allocator), known(60, 40, MappingUse::allocator)};
    const MemoryByKind memory = split_memory(now, ranges, {}, must_not_be_asked);
    CHECK(pages_of(memory, MemoryKind::heap) == 10);
    CHECK(pages_of(memory, MemoryKind::unknown) == 4);
}

TEST_CASE("what the program takes of the data segment is its own", "[heap]") {
    const std::vector<ResidentRange> now = {range(0, 10, 10, MemoryKind::heap)};
    const MemoryByKind memory = split_memory(now, std::vector{known(4, 2, MappingUse::program)}, {}, all);
    CHECK(pages_of(memory, MemoryKind::heap) == 8);
    CHECK(pages_of(memory, MemoryKind::mappings) == 2);
}

TEST_CASE("whose earlier memory was may turn out later, for then and for now", "[heap]") {
    EarlierMemory earlier(std::vector{range(0, 100, 40, MemoryKind::unknown), range(200, 10, 10, MemoryKind::files),
                                      range(300, 10, 10, MemoryKind::unknown)});
    CHECK(pages_of(earlier.sums(), MemoryKind::earlier) == 50);
    CHECK(pages_of(earlier.sums(), MemoryKind::files) == 10);

    earlier.assign(50 * page, 75 * page, MemoryKind::heap);
    CHECK(pages_of(earlier.sums(), MemoryKind::heap) == 10);
    // What is known stays.
    earlier.assign(0, 400 * page, MemoryKind::mappings);
    CHECK(pages_of(earlier.sums(), MemoryKind::heap) == 10);
    CHECK(pages_of(earlier.sums(), MemoryKind::mappings) == 40);
    CHECK(pages_of(earlier.sums(), MemoryKind::earlier) == 0);
    CHECK(earlier.sums().rss_sum() == 60 * page);

    const std::vector<ResidentRange> now = {range(0, 100, 100, MemoryKind::unknown),
                                            range(100, 8, 8, MemoryKind::unknown)};
    const MemoryByKind memory = split_memory(now, {}, earlier.ranges(), all);
    CHECK(pages_of(memory, MemoryKind::heap) == 25);
    CHECK(pages_of(memory, MemoryKind::mappings) == 75);
    CHECK(pages_of(memory, MemoryKind::unknown) == 8);
}

TEST_CASE("memory in which the allocator's blocks come to lie was its own", "[heap]") {
    EarlierMemory earlier(std::vector{range(0, 10, 10, MemoryKind::unknown), range(20, 10, 10, MemoryKind::unknown)});
    earlier.assign_to_heap(std::vector<uint64_t>{25 * page + 16, 15 * page, 30 * page});
    CHECK(pages_of(earlier.sums(), MemoryKind::heap) == 10);
    CHECK(pages_of(earlier.sums(), MemoryKind::earlier) == 10);
    CHECK(earlier.ranges()[1].kind == MemoryKind::heap);
}

TEST_CASE("what is mapped now comes before what was there", "[heap]") {
    const EarlierMemory earlier(std::vector{range(0, 10, 10, MemoryKind::heap)});
    const MemoryByKind memory = split_memory(std::vector{range(0, 10, 10, MemoryKind::unknown)},
                                             std::vector{known(2, 3, MappingUse::program)}, earlier.ranges(), all);
    CHECK(pages_of(memory, MemoryKind::mappings) == 3);
    CHECK(pages_of(memory, MemoryKind::heap) == 7);
}

TEST_CASE("a forked child knows whose its parent's memory was, and starts with what it has", "[heap]") {
    const EarlierMemory parent(std::vector{range(0, 10, 10, MemoryKind::heap)});
    MemoryByKind then;
    then.add(MemoryKind::files, 3 * page, page);
    const EarlierMemory child(parent, then);
    CHECK(child.sums().rss_sum() == 3 * page);
    REQUIRE(child.ranges().size() == 1);
    CHECK(child.ranges()[0].kind == MemoryKind::heap);
}
