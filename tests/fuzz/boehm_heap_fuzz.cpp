// Any bytes as the memory of a process with libgc: a census or none, as many states as there are blocks. The input: a
// byte that chooses how the memory behaves and of which build libgc is, then the memory, which begins with the index.
// Run by libFuzzer; first inputs are in boehm_heap_corpus.
#include <array>
#include <cstdlib>

#include "fuzz/hostile_memory.hpp"
#include "runtimes/boehm_heap.hpp"

using namespace memtrace;

namespace {

constexpr uint64_t memory_start = 1ull << 22;
constexpr uint64_t index_bytes = 2048 * 8;

BoehmLayout layout_of(bool is_narrow) {
    BoehmLayout layout{.top_index = memory_start + 32,
                       .bottom_key = 1024 * 8 + 16,
                       .bottom_link = 1024 * 8 + 24,
                       .header_block = 16,
                       .header_kind = 24,
                       .header_flags = 25,
                       .header_size = 32,
                       .header_marks = 64,
                       .collection_counter = memory_start,
                       .allocated = {memory_start + 8, memory_start + 16},
                       .mark_state = memory_start + 24};
    if (is_narrow) layout.bottom_key = layout.bottom_link = layout.header_size = layout.header_marks = 0;
    return layout;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    if (size_bytes < 1) return 0;
    const std::span memory(data + 1, size_bytes - 1);
    const auto shape = static_cast<MemoryShape>((data[0] & 3) % 3);
    set_hostile_memory(shape, memory, memory_start);
    const BoehmHeap heap(hostile_memory(), layout_of((data[0] & 4) != 0));
    (void)heap.allocated_bytes();
    uint64_t objects = 0;
    const auto count = [&](const CensusObject& object) { objects += object.size_bytes != 0; };
    const auto figures = heap.census(count);
    if (figures && figures->blocks_not_read > figures->blocks + 2 * 65536) std::abort();
    std::vector<CollectedBlock> blocks;
    std::vector<uint64_t> addresses;
    for (uint64_t address = memory_start; address < memory_start + index_bytes + (1 << 20); address += 1008) {
        blocks.push_back({.address = address, .size_bytes = address % 512, .may_be_inside = (address & 1024) != 0});
        addresses.push_back(address);
    }
    const auto states = heap.states(blocks);
    if (states && states->size() != blocks.size()) std::abort();
    if (heap.first_words(addresses).size() != addresses.size()) std::abort();
    return 0;
}
