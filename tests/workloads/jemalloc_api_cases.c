/* jemalloc's own functions, mixed with malloc's family on the same blocks. */
#include <jemalloc/jemalloc.h>

#include "held.h"

static volatile size_t too_large = (size_t)1 << 62;

ALLOCATES(calls_malloc, malloc(size), size, size_t size)
ALLOCATES(calls_mallocx, mallocx(size, flags), size, size_t size, int flags)
RESIZES(calls_rallocx, rallocx(old.block, size, flags), size, size_t size, int flags)
RESIZES(calls_realloc, realloc(old.block, size), size, size_t size)

/* xallocx resizes in place or not at all: a result below `size` is a failure. */
CALL_SITE static struct held calls_xallocx(struct held old, size_t size, size_t extra) {
    const size_t usable = xallocx(old.block, size, extra, 0);
    return hold_resized(old, usable >= size ? old.block : NULL, "calls_xallocx", size);
}

static void mallocx_lives_and_fails(void) {
    calls_mallocx(100, 0);
    calls_mallocx(101, MALLOCX_ALIGN(128));
    calls_mallocx(102, MALLOCX_ZERO);
    calls_mallocx(103, MALLOCX_TCACHE_NONE);
    calls_mallocx(5 << 20, MALLOCX_LG_ALIGN(16));
    workload_require(calls_mallocx(too_large, 0).block == NULL, "a mallocx that fails");
}

static void dallocx_frees(void) {
    struct held block = calls_mallocx(200, MALLOCX_TCACHE_NONE);
    dallocx(block.block, MALLOCX_TCACHE_NONE);
    released(block);
    block = calls_malloc(201);
    dallocx(block.block, 0);
    released(block);
}

static void sdallocx_frees(void) {
    struct held block = calls_mallocx(300, 0);
    sdallocx(block.block, 300, 0);
    released(block);
    block = calls_mallocx(301, MALLOCX_ALIGN(64));
    sdallocx(block.block, 301, MALLOCX_ALIGN(64));
    released(block);
}

static void rallocx_moves_grows_and_shrinks(void) {
    struct held block = calls_mallocx(400, 0);
    block = calls_rallocx(block, 4000, 0);
    block = calls_rallocx(block, 40000, MALLOCX_ALIGN(64));
    block = calls_rallocx(block, 40, 0);
    block = calls_rallocx(block, 41, MALLOCX_ZERO);
    block = calls_realloc(block, 500);
    free(block.block);
    released(block);
}

static void rallocx_fails_and_keeps_the_block(void) {
    struct held block = calls_mallocx(500, 0);
    workload_require(calls_rallocx(block, too_large, 0).block == block.block, "a rallocx that fails");
    dallocx(block.block, 0);
    released(block);
}

static void xallocx_resizes_in_place_or_fails(void) {
    struct held block = calls_mallocx(600, 0);
    block = calls_xallocx(block, 610, 0);
    workload_require(calls_xallocx(block, 1 << 20, 0).site == block.site, "an xallocx that fails");
    block = calls_xallocx(block, 620, 4);
    dallocx(block.block, 0);
    released(block);
    block = calls_mallocx(4 << 20, 0);
    block = calls_xallocx(block, 3 << 20, 0);
    calls_xallocx(block, 3 << 20, 1 << 20);
}

static void questions_are_no_events(void) {
    struct held block = calls_mallocx(700, 0);
    workload_require(sallocx(block.block, 0) >= 700 && nallocx(700, 0) >= 700, "the size of a block");
    workload_require(malloc_usable_size(block.block) >= 700, "the size of a block");
}

const struct workload_case workload_cases[] = {
    {"mallocx_lives_and_fails", mallocx_lives_and_fails},
    {"dallocx_frees", dallocx_frees},
    {"sdallocx_frees", sdallocx_frees},
    {"rallocx_moves_grows_and_shrinks", rallocx_moves_grows_and_shrinks},
    {"rallocx_fails_and_keeps_the_block", rallocx_fails_and_keeps_the_block},
    {"xallocx_resizes_in_place_or_fails", xallocx_resizes_in_place_or_fails},
    {"questions_are_no_events", questions_are_no_events},
    {NULL, NULL},
};
