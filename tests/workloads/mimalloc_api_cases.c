/* mimalloc's own functions (mimalloc.h), each once or more. What mi_heap_destroy takes at once no probe can see: it is
 * not here. */
#include <errno.h>
#include <mimalloc.h>
#include <stdlib.h>
#include <string.h>

#include "held.h"

static volatile size_t too_large = (size_t)1 << 62;
static mi_heap_t* heap;

void workload_prepare(void) {
    heap = mi_heap_new();
    mi_free(mi_malloc(10));
    mi_free(mi_heap_malloc(heap, 10));
}

static void frees(struct held old) {
    mi_free(old.block);
    released(old);
}

ALLOCATES(calls_malloc, malloc(size), size, size_t size)
ALLOCATES(calls_mi_malloc, mi_malloc(size), size, size_t size)
ALLOCATES(calls_mi_malloc_small, mi_malloc_small(size), size, size_t size)
ALLOCATES(calls_mi_zalloc, mi_zalloc(size), size, size_t size)
ALLOCATES(calls_mi_zalloc_small, mi_zalloc_small(size), size, size_t size)
ALLOCATES(calls_mi_calloc, mi_calloc(count, size), count* size, size_t count, size_t size)
ALLOCATES(calls_mi_mallocn, mi_mallocn(count, size), count* size, size_t count, size_t size)

static void plain_forms_live_and_fail(void) {
    calls_mi_malloc(100);
    calls_mi_malloc_small(101);
    calls_mi_zalloc(102);
    calls_mi_zalloc_small(103);
    calls_mi_calloc(4, 26);
    calls_mi_mallocn(5, 21);
    frees(calls_mi_malloc(9 << 20));
    frees(calls_mi_zalloc(9 << 20));
    workload_require(calls_mi_malloc(too_large).block == NULL, "an mi_malloc that fails");
    workload_require(calls_mi_calloc(too_large, 8).block == NULL, "an mi_calloc that overflows");
    workload_require(calls_mi_mallocn(too_large, 8).block == NULL, "an mi_mallocn that overflows");
}

static void every_free_frees(void) {
    frees(calls_mi_malloc(110));
    struct held block = calls_mi_malloc(111);
    mi_free_size(block.block, 111);
    released(block);
    block = calls_mi_malloc(112);
    mi_cfree(block.block);
    released(block);
    block = hold(mi_malloc_aligned(113, 64), NULL, 113);
    mi_free_aligned(block.block, 64);
    released(block);
    block = hold(mi_malloc_aligned(114, 64), NULL, 114);
    mi_free_size_aligned(block.block, 114, 64);
    released(block);
    block = calls_mi_malloc(115);
    free(block.block);
    released(block);
    frees(calls_malloc(116));
    mi_free(NULL);
}

RESIZES(calls_mi_realloc, mi_realloc(old.block, size), size, size_t size)
RESIZES(calls_mi_reallocn, mi_reallocn(old.block, count, size), count* size, size_t count, size_t size)
RESIZES(calls_mi_rezalloc, mi_rezalloc(old.block, size), size, size_t size)
RESIZES(calls_mi_recalloc, mi_recalloc(old.block, count, size), count* size, size_t count, size_t size)
RESIZES(calls_mi_reallocarray, mi_reallocarray(old.block, count, size), count* size, size_t count, size_t size)
RESIZES(calls_mi_expand, mi_expand(old.block, size), size, size_t size)
RESIZES(calls_mi_realloc_aligned, mi_realloc_aligned(old.block, size, 64), size, size_t size)
RESIZES(calls_mi_recalloc_aligned, mi_recalloc_aligned(old.block, count, size, 64), count* size, size_t count,
        size_t size)

static void resizing_forms_move_and_fail(void) {
    struct held block = calls_mi_malloc(120);
    block = calls_mi_realloc(block, 1200);
    block = calls_mi_realloc(block, 1190);
    block = calls_mi_reallocn(block, 100, 121);
    block = calls_mi_rezalloc(block, 12200);
    block = calls_mi_recalloc(block, 100, 123);
    block = calls_mi_reallocarray(block, 10, 124);
    block = calls_mi_realloc_aligned(block, 1250);
    block = calls_mi_recalloc_aligned(block, 100, 126);
    workload_require(calls_mi_realloc(block, too_large).site == block.site, "an mi_realloc that fails");
    workload_require(calls_mi_reallocn(block, too_large, 8).site == block.site, "an mi_reallocn that overflows");
    frees(block);
    calls_mi_realloc((struct held){NULL, NULL, 0}, 127);
}

static void mi_expand_stays_or_fails(void) {
    struct held block = calls_mi_malloc(130);
    block = calls_mi_expand(block, 131);
    workload_require(calls_mi_expand(block, 1 << 20).site == block.site, "an mi_expand that fails");
    frees(block);
}

/* Unlike realloc it frees the block when it fails. */
CALL_SITE static struct held calls_mi_reallocf(struct held old, size_t size) {
    void* block = mi_reallocf(old.block, size);
    released(old);
    return hold(block, "calls_mi_reallocf", size);
}

static void mi_reallocf_frees_when_it_fails(void) {
    frees(calls_mi_reallocf(calls_mi_malloc(140), 1400));
    workload_require(calls_mi_reallocf(calls_mi_malloc(141), too_large).block == NULL, "an mi_reallocf that fails");
}

ALLOCATES(calls_mi_malloc_aligned, mi_malloc_aligned(size, alignment), size, size_t size, size_t alignment)
ALLOCATES(calls_mi_malloc_aligned_at, mi_malloc_aligned_at(size, 64, offset), size, size_t size, size_t offset)
ALLOCATES(calls_mi_zalloc_aligned, mi_zalloc_aligned(size, alignment), size, size_t size, size_t alignment)
ALLOCATES(calls_mi_calloc_aligned, mi_calloc_aligned(count, size, 64), count* size, size_t count, size_t size)
ALLOCATES(calls_mi_aligned_alloc, mi_aligned_alloc(alignment, size), size, size_t alignment, size_t size)
ALLOCATES(calls_mi_memalign, mi_memalign(alignment, size), size, size_t alignment, size_t size)
ALLOCATES(calls_mi_valloc, mi_valloc(size), size, size_t size)
ALLOCATES(calls_mi_pvalloc, mi_pvalloc(size), size, size_t size)

CALL_SITE static struct held calls_mi_posix_memalign(size_t alignment, size_t size, int expected) {
    void* block = NULL;
    workload_require(mi_posix_memalign(&block, alignment, size) == expected, "the status of mi_posix_memalign");
    return hold(expected == 0 ? block : NULL, "calls_mi_posix_memalign", size);
}

static void aligned_forms_live_and_fail(void) {
    calls_mi_malloc_aligned(150, 64);
    frees(calls_mi_malloc_aligned(5000, 4096));
    calls_mi_malloc_aligned_at(151, 8);
    calls_mi_zalloc_aligned(152, 128);
    calls_mi_calloc_aligned(9, 17);
    calls_mi_aligned_alloc(64, 128);
    calls_mi_memalign(32, 154);
    calls_mi_valloc(155);
    calls_mi_pvalloc(156);
    frees(calls_mi_posix_memalign(64, 157, 0));
    calls_mi_posix_memalign(64, 158, 0);
    calls_mi_posix_memalign(64, too_large, ENOMEM);
    workload_require(calls_mi_malloc_aligned(too_large, 64).block == NULL, "an mi_malloc_aligned that fails");
}

ALLOCATES(calls_mi_heap_malloc, mi_heap_malloc(heap, size), size, size_t size)
ALLOCATES(calls_mi_heap_malloc_small, mi_heap_malloc_small(heap, size), size, size_t size)
ALLOCATES(calls_mi_heap_zalloc, mi_heap_zalloc(heap, size), size, size_t size)
ALLOCATES(calls_mi_heap_calloc, mi_heap_calloc(heap, count, size), count* size, size_t count, size_t size)
ALLOCATES(calls_mi_heap_mallocn, mi_heap_mallocn(heap, count, size), count* size, size_t count, size_t size)
ALLOCATES(calls_mi_heap_malloc_aligned, mi_heap_malloc_aligned(heap, size, 64), size, size_t size)
RESIZES(calls_mi_heap_realloc, mi_heap_realloc(heap, old.block, size), size, size_t size)
RESIZES(calls_mi_heap_reallocn, mi_heap_reallocn(heap, old.block, count, size), count* size, size_t count, size_t size)

static void heap_forms_live(void) {
    calls_mi_heap_malloc(160);
    calls_mi_heap_malloc_small(161);
    calls_mi_heap_zalloc(162);
    calls_mi_heap_calloc(2, 81);
    calls_mi_heap_mallocn(3, 54);
    calls_mi_heap_malloc_aligned(163);
    struct held block = calls_mi_heap_realloc(calls_mi_heap_malloc(164), 1640);
    frees(calls_mi_heap_reallocn(block, 50, 50));
}

ALLOCATES(calls_mi_strdup, mi_strdup(text), strlen(text) + 1, const char* text)
ALLOCATES(calls_mi_strndup, mi_strndup(text, length), length + 1, const char* text, size_t length)
ALLOCATES(calls_mi_heap_strdup, mi_heap_strdup(heap, text), strlen(text) + 1, const char* text)

static void strings_are_copied(void) {
    frees(calls_mi_strdup("a text of some length"));
    calls_mi_strdup("another text");
    calls_mi_strndup("only the first of these words", 8);
    calls_mi_heap_strdup("in a heap of its own");
}

ALLOCATES(calls_mi_new, mi_new(size), size, size_t size)
ALLOCATES(calls_mi_new_n, mi_new_n(count, size), count* size, size_t count, size_t size)
ALLOCATES(calls_mi_new_aligned, mi_new_aligned(size, alignment), size, size_t size, size_t alignment)
ALLOCATES(calls_mi_new_nothrow, mi_new_nothrow(size), size, size_t size)
ALLOCATES(calls_mi_new_aligned_nothrow, mi_new_aligned_nothrow(size, alignment), size, size_t size, size_t alignment)
RESIZES(calls_mi_new_realloc, mi_new_realloc(old.block, size), size, size_t size)
RESIZES(calls_mi_new_reallocn, mi_new_reallocn(old.block, count, size), count* size, size_t count, size_t size)

static void new_forms_live(void) {
    calls_mi_new(170);
    calls_mi_new_n(3, 57);
    calls_mi_new_aligned(171, 64);
    calls_mi_new_nothrow(172);
    calls_mi_new_aligned_nothrow(173, 64);
    struct held block = calls_mi_new_realloc(calls_mi_new(174), 1740);
    frees(calls_mi_new_reallocn(block, 60, 60));
}

const struct workload_case workload_cases[] = {
    {"plain_forms_live_and_fail", plain_forms_live_and_fail},
    {"every_free_frees", every_free_frees},
    {"resizing_forms_move_and_fail", resizing_forms_move_and_fail},
    {"mi_expand_stays_or_fails", mi_expand_stays_or_fails},
    {"mi_reallocf_frees_when_it_fails", mi_reallocf_frees_when_it_fails},
    {"aligned_forms_live_and_fail", aligned_forms_live_and_fail},
    {"heap_forms_live", heap_forms_live},
    {"strings_are_copied", strings_are_copied},
    {"new_forms_live", new_forms_live},
    {NULL, NULL},
};
