/* More than a counter of 32 or 24 bits can hold, at one call site; more blocks than most programs have. */
#include <stdlib.h>

#include "workload.h"

static void* volatile sink;

CALL_SITE static void* allocates_64_mib(void) {
    const size_t size = (size_t)64 << 20;
    void* block = malloc(size); /* never touched: it costs address space only */
    workload_require(block != NULL, "64 MiB of address space");
    truth_allocated(truth_site("allocates_64_mib"), size);
    return block;
}

static void one_site_holds_more_than_4_gib(void) {
    for (int i = 0; i < 80; ++i)
        sink = allocates_64_mib();
}

CALL_SITE static void* allocates_in_millions(void) {
    return malloc(24);
}

/* Keeps one block of each run; run 17 times, it is more than 2^24 allocations. */
static void one_site_allocates_a_million_times(void) {
    enum { COUNT = 1 << 20, SIZE = 24 };
    for (unsigned i = 0; i < COUNT; ++i) {
        void* block = allocates_in_millions();
        sink = block;
        if (i != 0) free(block);
    }
    struct site_truth* site = truth_site("allocates_in_millions");
    site->allocations += COUNT;
    site->allocated_bytes += (uint64_t)COUNT * SIZE;
    site->frees += COUNT - 1;
    site->freed_bytes += (uint64_t)(COUNT - 1) * SIZE;
}

CALL_SITE static void* one_of_ten_million(size_t size) {
    return malloc(size);
}

static void ten_million_blocks_live(void) {
    enum { COUNT = 10 * 1000 * 1000 };
    struct site_truth* site = truth_site("one_of_ten_million");
    for (unsigned i = 0; i < COUNT; ++i) {
        const size_t size = 1 + i % 24;
        sink = one_of_ten_million(size);
        truth_allocated(site, size);
    }
}

const struct workload_case workload_cases[] = {
    {"one_site_holds_more_than_4_gib", one_site_holds_more_than_4_gib},
    {"one_site_allocates_a_million_times", one_site_allocates_a_million_times},
    {"ten_million_blocks_live", ten_million_blocks_live},
    {NULL, NULL},
};
