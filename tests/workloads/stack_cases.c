/* Many stacks, and stacks deeper than any tracer records. */
#include <stdlib.h>

#include "workload.h"

static void* volatile sink;

CALL_SITE static void* mallocs_at_the_leaf(size_t size) {
    truth_allocated(truth_site("mallocs_at_the_leaf"), size);
    return malloc(size);
}

CALL_SITE static void* mallocs_in_the_deep(size_t size) {
    truth_allocated(truth_site("mallocs_in_the_deep"), size);
    return malloc(size);
}

CALL_SITE static void descend(int depth) {
    if (depth == 0)
        sink = mallocs_in_the_deep(19);
    else
        descend(depth - 1);
}

static void recursion_of_1000_frames(void) {
    descend(1000);
}

static void walk(unsigned path, int bits);

CALL_SITE static void turn_left(unsigned path, int bits) {
    walk(path, bits);
}

CALL_SITE static void turn_right(unsigned path, int bits) {
    walk(path, bits);
}

/* Each path is another stack: 2^bits call sites. */
CALL_SITE static void walk(unsigned path, int bits) {
    if (bits == 0)
        sink = mallocs_at_the_leaf(path % 7);
    else if (path % 2 == 0)
        turn_left(path / 2, bits - 1);
    else
        turn_right(path / 2, bits - 1);
}

static void a_thousand_stacks(void) {
    for (unsigned path = 0; path < 1024; ++path)
        walk(path, 10);
}

CALL_SITE static void* größe_mallocs(void) {
    truth_allocated(truth_site("größe_mallocs"), 23);
    return malloc(23);
}

static void a_name_beyond_ascii(void) {
    sink = größe_mallocs();
}

static void many_blocks(void) {
    for (unsigned i = 0; i < 20000; ++i)
        sink = mallocs_at_the_leaf(16);
}

const struct workload_case workload_cases[] = {
    {"recursion_of_1000_frames", recursion_of_1000_frames},
    {"a_thousand_stacks", a_thousand_stacks},
    {"a_name_beyond_ascii", a_name_beyond_ascii},
    {"many_blocks", many_blocks},
    {NULL, NULL},
};
