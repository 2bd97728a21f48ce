/* What the preloaded counter shares with the test through the file $COUNTING_PRELOAD_DIRECTORY/PID. Plain C and C++.
 *
 * The test starts a window while the program is quiet: it zeroes the figures and raises `window`. Blocks from before
 * are then unknown, as they are to a tracer that attaches. */
#pragma once

#include <stdint.h>

struct counting_figures {
    uint64_t window;
    uint64_t allocated_bytes;
    uint64_t allocations;
    uint64_t freed_bytes;
    uint64_t frees;
    uint64_t unknown_frees;
    uint64_t not_counted; /* blocks for which the table had no room: the figures are then void */
};
