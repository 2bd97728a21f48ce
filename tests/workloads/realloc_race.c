/* realloc that moves blocks while other threads take what it gave back: a tracer that records realloc's free at its
 * return frees blocks of other threads. One arena, and no cache a thread when GLIBC_TUNABLES says
 * glibc.malloc.tcache_count=0: only then is a freed address handed out again at once. */
#include <malloc.h>
#include <stdlib.h>

#include "threads.h"
#include "workload.h"

static void* volatile sink;

CALL_SITE static void* grows_by_realloc(void* old, size_t old_size, size_t size) {
    struct site_truth* site = truth_site("grows_by_realloc");
    void* block = realloc(old, size);
    truth_allocated(site, size);
    if (old != NULL) truth_freed(site, old_size);
    return block;
}

CALL_SITE static void* churns_by_malloc(size_t size) {
    truth_allocated(truth_site("churns_by_malloc"), size);
    return malloc(size);
}

static void grow(void) {
    for (unsigned round = 0; round < 600 * workload_scale; ++round) {
        void* block = NULL;
        size_t size = 0;
        for (size_t next = 32; next <= 3200; next += 320) {
            block = grows_by_realloc(block, size, next);
            size = next;
        }
        sink = block;
        if (round % 100 == 0) continue; /* stays live */
        truth_freed(truth_site("grows_by_realloc"), size);
        free(block);
    }
}

static void churn(void) {
    enum { HELD = 16 };
    void* held[HELD] = {NULL};
    size_t sizes[HELD] = {0};
    for (unsigned i = 0; i < 9000 * workload_scale; ++i) {
        const unsigned slot = i % HELD;
        if (held[slot] != NULL) truth_freed(truth_site("churns_by_malloc"), sizes[slot]);
        free(held[slot]);
        sizes[slot] = 32 + 320 * (i * 7 % 10);
        held[slot] = churns_by_malloc(sizes[slot]);
    }
}

static void grow_or_churn(int index) {
    if (index % 2 == 0)
        grow();
    else
        churn();
}

static void realloc_races_malloc(void) {
    threads_run(4, grow_or_churn);
}

void workload_prepare(void) {
    mallopt(M_ARENA_MAX, 1);
    threads_start(4);
}

const struct workload_case workload_cases[] = {
    {"realloc_races_malloc", realloc_races_malloc},
    {NULL, NULL},
};
