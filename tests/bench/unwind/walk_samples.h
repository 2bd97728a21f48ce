/* What walk.bpf.c leaves for the bench. Plain C and C++. */
#pragma once

enum walk_kind { WALK_NOTHING, WALK_BY_MEMTRACE, WALK_BY_KERNEL, WALK_KINDS };
enum { WALK_ROWS = 4, WALK_SAMPLES = 1 << 15 }; /* powers of two */

/* One call; duration 0: none yet. Later ones take the place of the earliest. */
struct walk_sample {
    unsigned duration_ns;
    unsigned frame_count;
};
