/* Every allocating function of libc, with each way to succeed and to fail. */
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workload.h"

/* More than the 2^63 - 1 bytes that any allocation can have; volatile, so that the compiler neither warns nor folds. */
static volatile size_t too_large = (size_t)1 << 63;
static volatile size_t zero = 0;
static void* volatile null_pointer = NULL;
static void* volatile sink;

enum { OLD_BLOCKS = 8 };
static void* old_blocks[OLD_BLOCKS];

void workload_prepare(void) {
    for (int i = 0; i < OLD_BLOCKS; ++i)
        old_blocks[i] = malloc(1000);
}

/* One call site a function: SITE(calls_malloc, malloc(size), size_t size) defines `calls_malloc`, which allocates,
 * notes `asked` bytes when the call succeeded, and hands the block on. */
#define SITE(name, call, asked, ...)                                  \
    CALL_SITE static void* name(__VA_ARGS__) {                        \
        void* block = call;                                           \
        if (block != NULL) truth_allocated(truth_site(#name), asked); \
        sink = block;                                                 \
        return block;                                                 \
    }

SITE(calls_malloc, malloc(size), size, size_t size)
SITE(calls_calloc, calloc(count, size), count* size, size_t count, size_t size)
SITE(calls_aligned_alloc, aligned_alloc(alignment, size), size, size_t alignment, size_t size)
SITE(calls_memalign, memalign(alignment, size), size, size_t alignment, size_t size)
SITE(calls_valloc, valloc(size), size, size_t size)
SITE(calls_pvalloc, pvalloc(size), size, size_t size)

CALL_SITE static void* calls_posix_memalign(size_t alignment, size_t size, int expected) {
    void* block = (void*)0x1000; /* what a failed call leaves: no block */
    const int status = posix_memalign(&block, alignment, size);
    workload_require(status == expected, "the expected status of posix_memalign");
    if (status != 0) return NULL;
    truth_allocated(truth_site("calls_posix_memalign"), size);
    return block;
}

CALL_SITE static void* calls_realloc(void* old, struct site_truth* old_site, size_t old_size, size_t size) {
    void* block = realloc(old, size);
    if (block == NULL && size != 0) return NULL;
    if (block != NULL) truth_allocated(truth_site("calls_realloc"), size);
    if (old != NULL && old_site != NULL) truth_freed(old_site, old_size);
    if (old != NULL && old_site == NULL) truth_unknown_freed(1);
    sink = block;
    return block;
}

CALL_SITE static void* calls_reallocarray(void* old, size_t old_size, size_t count, size_t size) {
    void* block = reallocarray(old, count, size);
    if (block == NULL) return NULL;
    truth_allocated(truth_site("calls_reallocarray"), count * size);
    if (old != NULL) truth_freed(truth_site("calls_reallocarray"), old_size);
    return block;
}

static void calls_free(void* block, const char* site, size_t size) {
    free(block);
    truth_freed(truth_site(site), size);
}

static void malloc_lives(void) {
    for (int i = 0; i < 10; ++i)
        calls_malloc(100);
}

static void malloc_is_freed(void) {
    for (int i = 0; i < 50; ++i)
        calls_free(calls_malloc(64), "calls_malloc", 64);
}

static void malloc_of_zero_bytes_is_a_block(void) {
    void* first = calls_malloc(zero);
    calls_malloc(zero);
    calls_free(first, "calls_malloc", 0);
}

static void malloc_fails(void) {
    workload_require(calls_malloc(too_large) == NULL, "a malloc that fails");
    workload_require(calls_malloc(too_large / 2) == NULL, "a malloc that the kernel refuses");
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

static void calloc_lives(void) {
    for (int i = 0; i < 7; ++i)
        calls_calloc(3, 111);
    calls_calloc(zero, 5);
    calls_free(calls_calloc(10, 10), "calls_calloc", 100);
}

static void calloc_fails(void) {
    workload_require(calls_calloc(too_large, 4) == NULL, "a calloc that overflows");
    workload_require(calls_calloc(too_large / 8, 4) == NULL, "a calloc that fails");
}

static void realloc_of_null(void) {
    void* block = calls_realloc(NULL, NULL, 0, 77);
    calls_free(block, "calls_realloc", 77);
    calls_realloc(NULL, NULL, 0, 78);
}

static void realloc_grows_and_shrinks(void) {
    struct site_truth* own = truth_site("calls_realloc");
    void* block = calls_realloc(calls_malloc(40), truth_site("calls_malloc"), 40, 400);
    block = calls_realloc(block, own, 400, 60);
    block = calls_realloc(block, own, 60, 60);
    calls_realloc(block, own, 60, 50000);
}

static void realloc_moves(void) {
    void* block = calls_malloc(5000);
    void* moved = calls_realloc(block, truth_site("calls_malloc"), 5000, 500000);
    workload_require(moved != block, "a block that moves");
}

static void realloc_to_zero_frees(void) {
    void* gone = calls_realloc(calls_malloc(32), truth_site("calls_malloc"), 32, zero);
    workload_require(gone == NULL, "realloc(p, 0) of glibc, which frees");
}

static void realloc_fails_and_keeps_the_block(void) {
    void* block = calls_malloc(333);
    workload_require(calls_realloc(block, truth_site("calls_malloc"), 333, too_large) == NULL, "a realloc that fails");
    void* freed = calls_malloc(334);
    workload_require(calls_realloc(freed, truth_site("calls_malloc"), 334, too_large / 2) == NULL,
                     "a realloc that fails");
    calls_free(freed, "calls_malloc", 334);
}

static void realloc_of_an_older_block(void) {
    calls_realloc(old_blocks[2], NULL, 0, 3000);
    workload_require(realloc(old_blocks[3], too_large) == NULL, "a realloc that fails");
}

static void reallocarray_lives_and_fails(void) {
    void* block = calls_reallocarray(NULL, 0, 4, 25);
    block = calls_reallocarray(block, 100, 40, 25);
    workload_require(calls_reallocarray(block, 1000, too_large, 4) == NULL, "a reallocarray that overflows");
}

static void posix_memalign_lives_and_fails(void) {
    calls_free(calls_posix_memalign(64, 300, 0), "calls_posix_memalign", 300);
    calls_posix_memalign(4096, 500, 0);
    calls_posix_memalign(3, 100, EINVAL);
    calls_posix_memalign(64, too_large, ENOMEM);
}

static void aligned_forms_live_and_fail(void) {
    calls_aligned_alloc(64, 640);
    calls_free(calls_aligned_alloc(256, 512), "calls_aligned_alloc", 512);
    calls_memalign(32, 321);
    calls_valloc(100);
    calls_pvalloc(101);
    workload_require(calls_aligned_alloc(64, too_large) == NULL, "an aligned_alloc that fails");
    workload_require(calls_memalign(64, too_large) == NULL, "a memalign that fails");
    workload_require(calls_valloc(too_large) == NULL, "a valloc that fails");
    workload_require(calls_pvalloc(too_large) == NULL, "a pvalloc that fails");
}

/* Above the threshold glibc maps each block, and realloc remaps it: none of that is a mapping of the program. */
static void large_blocks_map_inside(void) {
    void* blocks[6];
    for (int i = 0; i < 6; ++i)
        blocks[i] = calls_malloc(1 << 20);
    for (int i = 0; i < 3; ++i)
        calls_free(blocks[i], "calls_malloc", 1 << 20);
    calls_realloc(blocks[3], truth_site("calls_malloc"), 1 << 20, 40 << 20);
    calls_calloc(1, 33 << 20);
    calls_free(calls_posix_memalign(1 << 16, 34 << 20, 0), "calls_posix_memalign", 34 << 20);
}

static void the_top_is_trimmed(void) {
    enum { COUNT = 200 };
    static void* blocks[COUNT];
    for (int i = 0; i < COUNT; ++i)
        blocks[i] = calls_malloc(10000);
    for (int i = COUNT - 1; i >= 0; --i)
        calls_free(blocks[i], "calls_malloc", 10000);
}

/* libc's own calls of malloc belong to the program too: it asked for what they return. */
static void libc_allocates_for_the_caller(void) {
    static const char words[] = "twenty bytes of text";
    struct site_truth* elsewhere = truth_site(NULL);
    sink = strdup(words);
    truth_allocated(elsewhere, sizeof words);
    char* copy = strndup(words, 6);
    truth_allocated(elsewhere, 7);
    free(copy);
    truth_freed(elsewhere, 7);
}

const struct workload_case workload_cases[] = {
    {"malloc_lives", malloc_lives},
    {"malloc_is_freed", malloc_is_freed},
    {"malloc_of_zero_bytes_is_a_block", malloc_of_zero_bytes_is_a_block},
    {"malloc_fails", malloc_fails},
    {"free_of_null", free_of_null},
    {"free_of_an_older_block", free_of_an_older_block},
    {"calloc_lives", calloc_lives},
    {"calloc_fails", calloc_fails},
    {"realloc_of_null", realloc_of_null},
    {"realloc_grows_and_shrinks", realloc_grows_and_shrinks},
    {"realloc_moves", realloc_moves},
    {"realloc_to_zero_frees", realloc_to_zero_frees},
    {"realloc_fails_and_keeps_the_block", realloc_fails_and_keeps_the_block},
    {"realloc_of_an_older_block", realloc_of_an_older_block},
    {"reallocarray_lives_and_fails", reallocarray_lives_and_fails},
    {"posix_memalign_lives_and_fails", posix_memalign_lives_and_fails},
    {"aligned_forms_live_and_fail", aligned_forms_live_and_fail},
    {"large_blocks_map_inside", large_blocks_map_inside},
    {"the_top_is_trimmed", the_top_is_trimmed},
    {"libc_allocates_for_the_caller", libc_allocates_for_the_caller},
    {NULL, NULL},
};
