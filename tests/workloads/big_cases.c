/* More than a counter of 32 or 24 bits can hold, at one call site. */
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

/* 17 million pairs; add --scale 0 for none. */
static void one_site_allocates_more_than_2_to_the_24(void) {
    const unsigned count = ((1u << 24) + 1000) * workload_scale;
    for (unsigned i = 0; i < count; ++i) {
        void* block = allocates_in_millions();
        sink = block;
        if (i % (1u << 20) != 0) free(block);
    }
    struct site_truth* site = truth_site("allocates_in_millions");
    site->allocations += count;
    site->allocated_bytes += (uint64_t)count * 24;
    const unsigned kept = (count + (1u << 20) - 1) >> 20;
    site->frees += count - kept;
    site->freed_bytes += (uint64_t)(count - kept) * 24;
}

const struct workload_case workload_cases[] = {
    {"one_site_holds_more_than_4_gib", one_site_holds_more_than_4_gib},
    {"one_site_allocates_more_than_2_to_the_24", one_site_allocates_more_than_2_to_the_24},
    {NULL, NULL},
};
