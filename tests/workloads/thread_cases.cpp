// Threads that allocate, hand blocks to each other and race, with an exact balance at the end.
#include <sched.h>

#include <cstdlib>
#include <new>

#include "threads.h"
#include "workload.h"

namespace {

constexpr int thread_count = 8;
constexpr size_t slot_count = 512;

// Every block starts with what its freer must know.
struct Block {
    site_truth* site;
    size_t size_bytes;
};

Block* shared_slots[slot_count];
void* arena_blocks[thread_count];

// xorshift64*: each thread its own, so that a run can be repeated.
struct Random {
    uint64_t state;
    size_t below(size_t limit) {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        return (state * 2685821657736338717ull >> 33) % limit;
    }
};

Block* note(void* memory, site_truth* site, size_t size_bytes) {
    auto* block = static_cast<Block*>(memory);
    *block = {site, size_bytes};
    truth_allocated(site, size_bytes);
    return block;
}

}  // namespace

extern "C" {

CALL_SITE Block* races_malloc(size_t size) {
    static site_truth* const site = truth_site("races_malloc");
    return note(malloc(size), site, size);
}

CALL_SITE Block* races_calloc(size_t size) {
    static site_truth* const site = truth_site("races_calloc");
    return note(calloc(1, size), site, size);
}

CALL_SITE Block* races_new(size_t size) {
    static site_truth* const site = truth_site("races_new");
    return note(::operator new(size), site, size);
}

CALL_SITE Block* races_posix_memalign(size_t size) {
    static site_truth* const site = truth_site("races_posix_memalign");
    void* memory = nullptr;
    workload_require(posix_memalign(&memory, 64, size) == 0, "an aligned block");
    return note(memory, site, size);
}

CALL_SITE Block* races_realloc(Block* old, size_t size) {
    static site_truth* const site = truth_site("races_realloc");
    const Block before = *old;
    void* memory = realloc(old, size);
    workload_require(memory != nullptr, "a block that grows");
    truth_freed(before.site, before.size_bytes);
    return note(memory, site, size);
}

CALL_SITE void races_free(Block* block) {
    static site_truth* const new_site = truth_site("races_new");
    truth_freed(block->site, block->size_bytes);
    if (block->site == new_site)
        ::operator delete(block);
    else
        free(block);
}

CALL_SITE void* first_malloc_of_a_thread(size_t size) {
    truth_allocated(truth_site("first_malloc_of_a_thread"), size);
    return malloc(size);
}
}

namespace {

Block* allocate(Random& random) {
    const size_t size = sizeof(Block) + random.below(random.below(64) == 0 ? 300000 : 2000);
    switch (random.below(4)) {
        case 0:
            return races_calloc(size);
        case 1:
            return races_new(size);
        case 2:
            return races_posix_memalign(size);
        default:
            return races_malloc(size);
    }
}

bool may_realloc(const Block* block) {
    return block->site != truth_site("races_new");
}

// Swaps a new, a resized or no block into a random shared slot and frees what was there, whoever allocated it.
void race(int index) {
    Random random{0x9e3779b97f4a7c15ull + static_cast<uint64_t>(index)};
    for (unsigned i = 0; i < 4000 * workload_scale; ++i) {
        Block** slot = &shared_slots[random.below(slot_count)];
        const size_t choice = random.below(10);
        Block* incoming = choice < 6 ? allocate(random) : nullptr;
        Block* outgoing = __atomic_exchange_n(slot, incoming, __ATOMIC_ACQ_REL);
        if (outgoing == nullptr) continue;
        if (choice == 9 && may_realloc(outgoing)) {
            outgoing = races_realloc(outgoing, sizeof(Block) + random.below(3000));
            outgoing = __atomic_exchange_n(slot, outgoing, __ATOMIC_ACQ_REL);
        }
        if (outgoing != nullptr) races_free(outgoing);
    }
}

void threads_race() {
    threads_run(thread_count, race);
}

void the_shared_blocks_are_freed() {
    for (Block*& slot : shared_slots) {
        if (slot != nullptr) races_free(slot);
        slot = nullptr;
    }
}

void fill_slots(int index) {
    for (size_t i = static_cast<size_t>(index); i < slot_count; i += 2)
        shared_slots[i] = races_malloc(100 + i);
}

void empty_slots_of_the_other(int index) {
    for (size_t i = static_cast<size_t>(1 - index); i < slot_count; i += 2) {
        races_free(shared_slots[i]);
        shared_slots[i] = nullptr;
    }
}

void frees_come_from_other_threads() {
    threads_run(2, fill_slots);
    threads_run(2, empty_slots_of_the_other);
}

void first_malloc(int index) {
    arena_blocks[index] = first_malloc_of_a_thread(1000);
}

// glibc maps up to 128 MiB for the arena of a thread that allocates for the first time.
void arenas_are_no_mappings() {
    threads_run(thread_count, first_malloc);
}

void leave_a_block_and_exit(int) {
    races_malloc(500);
    threads_exit();
}

void threads_end_and_leave_blocks() {
    truth_unknown_frees_are_minimum();
    threads_run(thread_count, leave_a_block_and_exit);
}

}  // namespace

extern "C" {

void workload_prepare() {
    threads_start(thread_count);
}

const workload_case workload_cases[] = {
    {"arenas_are_no_mappings", arenas_are_no_mappings},
    {"frees_come_from_other_threads", frees_come_from_other_threads},
    {"threads_race", threads_race},
    {"the_shared_blocks_are_freed", the_shared_blocks_are_freed},
    {"threads_end_and_leave_blocks", threads_end_and_leave_blocks},
    {nullptr, nullptr},
};
}
