// Any bytes as the memory of a process that says to have glibc's malloc: a census or an Error, and no figure that
// contradicts another one. The input: a byte that chooses how the memory behaves, then the memory, which begins with
// the main arena. Run by libFuzzer; first inputs are in glibc_heap_corpus.
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "fuzz/hostile_memory.hpp"
#include "runtimes/glibc_census.hpp"

using namespace memtrace;

namespace {

// A place where the first heap of an arena could be.
constexpr uint64_t memory_start = 64ull << 20;
constexpr uint64_t arena_place = 0x1000;
constexpr uint64_t heap_place = arena_place + 2208;

void look_for_structures(std::span<const uint8_t> memory) {
    const auto bytes = std::as_bytes(memory);
    const auto arena = find_glibc_arena(bytes, memory_start);
    if (arena && (*arena < memory_start || *arena - memory_start + glibc_arena_bytes > bytes.size())) std::abort();
    const auto parameters = find_glibc_parameters(bytes, memory_start, memory_start + bytes.size());
    if (parameters && parameters->heap_begin < memory_start) std::abort();
    (void)parse_glibc_thread_cache(bytes);
    (void)find_glibc_version({reinterpret_cast<const char*>(memory.data()), memory.size()});
}

}  // namespace

/// What the process does meanwhile it does without waiting.
extern "C" int nanosleep(const timespec*, timespec*) {
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    if (size_bytes < 1) return 0;
    const auto shape = (data[0] & 1) != 0 ? MemoryShape::changing : MemoryShape::once;
    const std::span memory(data + 1, size_bytes - 1);
    set_hostile_memory(shape, memory, memory_start);
    look_for_structures(memory);
    const GlibcMalloc malloc(hostile_memory(), memory_start + arena_place, memory_start + heap_place,
                             memory_start + memory.size());
    const auto census = take_glibc_census(malloc, getpid());
    if (!census) return 0;
    uint64_t chunks_in_use = 0;
    for (const ChunkSizeSums& sums : census->sizes)
        chunks_in_use += sums.in_use.chunks;
    if (chunks_in_use != census->in_use.chunks) std::abort();
    return 0;
}
