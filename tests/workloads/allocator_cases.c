/* malloc's family as every allocator has it. What an allocator may choose (malloc(0), realloc(p, 0)) is asked of the
 * result, so that the truth is the same on all of them: linked, preloaded, inside the program, on any C library. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "workload.h"
#ifdef __dietlibc__
#define HAS_ALIGNED_FORMS 0
#define HAS_THREADS 0
#else
#include <malloc.h>

#include "threads.h"
#define HAS_ALIGNED_FORMS 1
#define HAS_THREADS 1
#endif

/* No allocator can have these; volatile, so that the compiler neither warns nor folds. */
static volatile size_t too_large = (size_t)1 << 63;
static volatile size_t larger_than_any_address_space = (size_t)1 << 60;
static volatile size_t zero = 0;
static void* volatile null_pointer = NULL;
static void* volatile sink;

enum { OLD_BLOCKS = 4, THREADS = 4 };
static void* old_blocks[OLD_BLOCKS];

/* One call site a function: SITE(calls_malloc, malloc(size), size, size_t size) defines `calls_malloc`, which
 * allocates, notes `asked` bytes when the call succeeded, and hands the block on. */
#define SITE(name, call, asked, ...)                                  \
    CALL_SITE static void* name(__VA_ARGS__) {                        \
        void* block = call;                                           \
        if (block != NULL) truth_allocated(truth_site(#name), asked); \
        sink = block;                                                 \
        return block;                                                 \
    }

SITE(calls_malloc, malloc(size), size, size_t size)
SITE(calls_calloc, calloc(count, size), count* size, size_t count, size_t size)

static void calls_free(void* block, const char* site, size_t size) {
    free(block);
    truth_freed(truth_site(site), size);
}

/* `size` is above 0. */
CALL_SITE static void* calls_realloc(void* old, const char* old_site, size_t old_size, size_t size) {
    void* block = realloc(old, size);
    sink = block;
    if (block == NULL) return NULL;
    truth_allocated(truth_site("calls_realloc"), size);
    if (old != NULL) truth_freed(truth_site(old_site), old_size);
    return block;
}

CALL_SITE static void* calls_reallocarray(void* old, size_t old_size, size_t count, size_t size) {
    void* block = reallocarray(old, count, size);
    sink = block;
    if (block == NULL) return NULL;
    truth_allocated(truth_site("calls_reallocarray"), count * size);
    if (old != NULL) truth_freed(truth_site("calls_reallocarray"), old_size);
    return block;
}

static void malloc_lives(void) {
    for (int i = 0; i < 10; ++i)
        calls_malloc(100);
}

static void malloc_is_freed(void) {
    for (int i = 0; i < 50; ++i)
        calls_free(calls_malloc(64), "calls_malloc", 64);
}

static void malloc_of_zero_bytes(void) {
    void* block = calls_malloc(zero);
    if (block != NULL) calls_free(block, "calls_malloc", 0);
    calls_malloc(zero);
}

static void malloc_fails(void) {
    workload_require(calls_malloc(too_large) == NULL, "a malloc that fails");
    workload_require(calls_malloc(larger_than_any_address_space) == NULL, "a malloc that the kernel refuses");
}

static void free_of_null(void) {
    for (int i = 0; i < 5; ++i)
        free(null_pointer);
}

static void free_of_an_older_block(void) {
    free(old_blocks[0]);
    free(old_blocks[1]);
    truth_unknown_freed(2);
}

static void calloc_lives_and_fails(void) {
    for (int i = 0; i < 7; ++i)
        calls_calloc(3, 111);
    calls_free(calls_calloc(10, 10), "calls_calloc", 100);
    workload_require(calls_calloc(too_large, 4) == NULL, "a calloc that overflows");
    workload_require(calls_calloc(larger_than_any_address_space / 8, 8) == NULL, "a calloc that fails");
}

static void realloc_of_null(void) {
    calls_free(calls_realloc(NULL, NULL, 0, 77), "calls_realloc", 77);
    calls_realloc(NULL, NULL, 0, 78);
}

static void realloc_grows_and_shrinks(void) {
    void* block = calls_realloc(calls_malloc(40), "calls_malloc", 40, 400);
    block = calls_realloc(block, "calls_realloc", 400, 60);
    block = calls_realloc(block, "calls_realloc", 60, 60);
    block = calls_realloc(block, "calls_realloc", 60, 50000);
    calls_realloc(block, "calls_realloc", 50000, 1);
}

static void realloc_moves(void) {
    void* block = calls_malloc(5000);
    calls_malloc(5000);
    void* moved = calls_realloc(block, "calls_malloc", 5000, 500000);
    workload_require(moved != block, "a block that moves");
}

CALL_SITE static void realloc_to_zero(void) {
    void* block = realloc(calls_malloc(32), zero);
    truth_freed(truth_site("calls_malloc"), 32);
    if (block != NULL) truth_allocated(truth_site("realloc_to_zero"), 0);
    sink = block;
}

static void realloc_fails_and_keeps_the_block(void) {
    void* block = calls_malloc(333);
    workload_require(calls_realloc(block, "calls_malloc", 333, too_large) == NULL, "a realloc that fails");
    void* freed = calls_malloc(334);
    workload_require(calls_realloc(freed, "calls_malloc", 334, larger_than_any_address_space) == NULL,
                     "a realloc that the kernel refuses");
    calls_free(freed, "calls_malloc", 334);
}

static void realloc_of_an_older_block(void) {
    sink = realloc(old_blocks[2], 3000);
    truth_allocated(truth_site(NULL), 3000);
    truth_unknown_freed(1);
    workload_require(realloc(old_blocks[3], too_large) == NULL, "a realloc that fails");
}

static void reallocarray_lives_and_fails(void) {
    void* block = calls_reallocarray(NULL, 0, 4, 25);
    block = calls_reallocarray(block, 100, 40, 25);
    workload_require(calls_reallocarray(block, 1000, too_large, 4) == NULL, "a reallocarray that overflows");
}

/* Above each allocator's threshold for blocks with a mapping of their own: none of them is a mapping of the program. */
static void large_blocks_map_inside(void) {
    void* blocks[6];
    for (int i = 0; i < 6; ++i)
        blocks[i] = calls_malloc(9 << 20);
    for (int i = 0; i < 3; ++i)
        calls_free(blocks[i], "calls_malloc", 9 << 20);
    calls_realloc(blocks[3], "calls_malloc", 9 << 20, 40 << 20);
    calls_realloc(blocks[4], "calls_malloc", 9 << 20, 100);
    calls_free(calls_calloc(1, 33 << 20), "calls_calloc", 33 << 20);
}

/* Through every size class, so that slow paths run that fill and flush caches. */
static void many_small_blocks(void) {
    enum { COUNT = 3000 };
    static void* blocks[COUNT];
    for (size_t i = 0; i < COUNT; ++i)
        blocks[i] = calls_malloc(i % 300 * 8);
    for (size_t i = 0; i < COUNT; i += 2)
        if (blocks[i] != NULL) calls_free(blocks[i], "calls_malloc", i % 300 * 8);
}

/* What the C library allocates for its caller is what the program asked for. */
static void libc_allocates_for_the_caller(void) {
    static const char* volatile words = "twenty bytes of text";
    sink = strdup(words);
    truth_allocated(truth_site(NULL), strlen(words) + 1);
    free(strdup(words));
    truth_allocated(truth_site(NULL), strlen(words) + 1);
    truth_freed(truth_site(NULL), strlen(words) + 1);
}

#if HAS_ALIGNED_FORMS
SITE(calls_aligned_alloc, aligned_alloc(alignment, size), size, size_t alignment, size_t size)
SITE(calls_memalign, memalign(alignment, size), size, size_t alignment, size_t size)
SITE(calls_valloc, valloc(size), size, size_t size)

CALL_SITE static void* calls_posix_memalign(size_t alignment, size_t size, int expected) {
    void* block = (void*)0x1000; /* what a failed call leaves: no block */
    const int status = posix_memalign(&block, alignment, size);
    workload_require(status == expected, "the expected status of posix_memalign");
    if (status != 0) return NULL;
    truth_allocated(truth_site("calls_posix_memalign"), size);
    return block;
}

static void posix_memalign_lives_and_fails(void) {
    calls_free(calls_posix_memalign(64, 300, 0), "calls_posix_memalign", 300);
    calls_posix_memalign(4096, 500, 0);
    calls_posix_memalign(1 << 16, 3 << 20, 0);
    calls_posix_memalign(64, too_large, ENOMEM);
}

static void aligned_forms_live_and_fail(void) {
    calls_aligned_alloc(64, 640);
    calls_free(calls_aligned_alloc(256, 512), "calls_aligned_alloc", 512);
    calls_memalign(32, 321);
    calls_free(calls_memalign(8192, 20000), "calls_memalign", 20000);
    calls_valloc(100);
    calls_realloc(calls_memalign(128, 322), "calls_memalign", 322, 700);
    workload_require(calls_aligned_alloc(64, too_large) == NULL, "an aligned_alloc that fails");
    workload_require(calls_memalign(64, too_large) == NULL, "a memalign that fails");
}
#endif

#if HAS_THREADS
enum { ROUNDS = 500 };
static void* left_by_others[THREADS];

CALL_SITE static void* thread_calls_malloc(size_t size) {
    void* block = malloc(size);
    truth_allocated(truth_site("thread_calls_malloc"), size);
    sink = block;
    return block;
}

/* Blocks of all sizes, each freed by the thread that next takes its slot. */
static void exchange_blocks(int index) {
    for (size_t i = 0; i < ROUNDS; ++i) {
        size_t* block = thread_calls_malloc(sizeof(size_t) + i);
        *block = sizeof(size_t) + i;
        size_t* other = __atomic_exchange_n(&left_by_others[(index + (int)i) % THREADS], block, __ATOMIC_SEQ_CST);
        if (other != NULL) calls_free(other, "thread_calls_malloc", *other);
    }
}

static void threads_free_each_others_blocks(void) {
    threads_run(THREADS, exchange_blocks);
}

static void warm_up(int index) {
    (void)index;
    free(malloc(10));
}
#endif

void workload_prepare(void) {
    for (int i = 0; i < OLD_BLOCKS; ++i)
        old_blocks[i] = malloc(1000);
#if HAS_THREADS
    threads_start_without_unwinder(THREADS);
    threads_run(THREADS, warm_up);
#endif
}

const struct workload_case workload_cases[] = {
    {"malloc_lives", malloc_lives},
    {"malloc_is_freed", malloc_is_freed},
    {"malloc_of_zero_bytes", malloc_of_zero_bytes},
    {"malloc_fails", malloc_fails},
    {"free_of_null", free_of_null},
    {"free_of_an_older_block", free_of_an_older_block},
    {"calloc_lives_and_fails", calloc_lives_and_fails},
    {"realloc_of_null", realloc_of_null},
    {"realloc_grows_and_shrinks", realloc_grows_and_shrinks},
    {"realloc_moves", realloc_moves},
    {"realloc_to_zero", realloc_to_zero},
    {"realloc_fails_and_keeps_the_block", realloc_fails_and_keeps_the_block},
    {"realloc_of_an_older_block", realloc_of_an_older_block},
    {"reallocarray_lives_and_fails", reallocarray_lives_and_fails},
    {"large_blocks_map_inside", large_blocks_map_inside},
    {"many_small_blocks", many_small_blocks},
    {"libc_allocates_for_the_caller", libc_allocates_for_the_caller},
#if HAS_ALIGNED_FORMS
    {"posix_memalign_lives_and_fails", posix_memalign_lives_and_fails},
    {"aligned_forms_live_and_fail", aligned_forms_live_and_fail},
#endif
#if HAS_THREADS
    {"threads_free_each_others_blocks", threads_free_each_others_blocks},
#endif
    {NULL, NULL},
};
