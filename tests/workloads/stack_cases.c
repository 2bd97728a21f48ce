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

/* The same functions below, with the same stack pointers and return addresses, and another caller above them. The
 * blocks are of its `size`, so that a report tells them apart. */
CALL_SITE static void mallocs_below_others(size_t size) {
    sink = malloc(size);
    free(sink);
}

CALL_SITE static void passes_on(size_t size) {
    mallocs_below_others(size);
}

CALL_SITE static void first_caller(size_t size) {
    passes_on(size);
}

CALL_SITE static void second_caller(size_t size) {
    passes_on(size);
}

/* ... in a frame that is elsewhere: what is above takes as much more of the stack as what is below takes less, and
 * finds there what was left there, return addresses too. */
CALL_SITE static void mallocs_below_room(size_t size, size_t room_bytes) {
    char* volatile room = __builtin_alloca(room_bytes);
    (void)room;
    sink = malloc(size);
    free(sink);
}

CALL_SITE static void third_caller(size_t size, size_t room_bytes) {
    mallocs_below_room(size, room_bytes);
}

CALL_SITE static void fourth_caller(size_t size, size_t room_bytes) {
    mallocs_below_room(size, room_bytes);
}

CALL_SITE static void takes_room(size_t size, size_t room_bytes) {
    char* volatile room = __builtin_alloca(room_bytes);
    (void)room;
    if (size == 103) third_caller(size, 1024 - room_bytes);
    if (size == 104) fourth_caller(size, 1024 - room_bytes);
}

static void the_same_place_from_other_callers(void) {
    static const size_t sizes[5] = {101, 102, 103, 104, 104}, rooms_bytes[5] = {0, 0, 64, 256, 768};
    static unsigned calls_of_size[5];
    for (unsigned run = 0; run < 400; ++run)
        for (unsigned step = 0; step <= run % 20; ++step) {
            const unsigned turn = run < 200 ? run % 2 : 2 + run % 3;
            if (turn == 0) first_caller(101);
            if (turn == 1) second_caller(102);
            /* One call, which returns to one address. */
            if (turn >= 2) takes_room(sizes[turn], rooms_bytes[turn]);
            ++calls_of_size[turn];
        }
    /* Not meanwhile: it would write over what the calls have left on the stack. */
    for (unsigned turn = 0; turn < 5; ++turn)
        for (unsigned call = 0; call < calls_of_size[turn]; ++call) {
            truth_allocated(truth_site(NULL), sizes[turn]);
            truth_freed(truth_site(NULL), sizes[turn]);
        }
}

const struct workload_case workload_cases[] = {
    {"the_same_place_from_other_callers", the_same_place_from_other_callers},
    {"recursion_of_1000_frames", recursion_of_1000_frames},
    {"a_thousand_stacks", a_thousand_stacks},
    {"a_name_beyond_ascii", a_name_beyond_ascii},
    {"many_blocks", many_blocks},
    {NULL, NULL},
};
