/* What the bench and its target say to each other over the target's standard input and output. Plain C and C++. */
#pragma once

#include <stdint.h>

enum { BENCH_MAX_SLICES = 32, BENCH_MAX_LIVE_BLOCKS = 1 << 20 };

/* Run `pairs` times malloc(64) and free, with `frames` functions of the target on the stack, in `slices` slices after
 * one that only warms up. With live blocks each pair frees one of them, taken at random, and makes a new one. */
struct bench_request {
    uint32_t frames;
    uint32_t slices; /* up to BENCH_MAX_SLICES */
    uint64_t pairs;
    uint32_t live_blocks;  /* 0 to BENCH_MAX_LIVE_BLOCKS */
    uint32_t keeps_blocks; /* 1: they stay live when the request is answered */
};

struct bench_result {
    double pair_ns[BENCH_MAX_SLICES]; /* of each slice in which the machine was quiet */
    uint32_t quiet_slices;
    uint32_t padding;
};
