/* What the bench and its target say to each other over the target's standard input and output. Plain C and C++. */
#pragma once

#include <stdint.h>

enum { BENCH_MAX_SLICES = 32 };

/* Run `pairs` times malloc(64) and free, with `frames` functions of the target on the stack, in `slices` slices after
 * one that only warms up. */
struct bench_request {
    uint32_t frames;
    uint32_t slices; /* 1 to BENCH_MAX_SLICES */
    uint64_t pairs;
};

struct bench_result {
    double pair_ns[BENCH_MAX_SLICES]; /* of each slice in which the machine was quiet */
    uint32_t quiet_slices;
    uint32_t padding;
};
