/* The target's memory: its stack, and strings. */
#pragma once

#include "arguments.h"
#include "maps.h"

/* A string of 64 MB is measured whole. */
#define MAX_STRING_PAGES (16 << 10)

/* A word of the user stack, through a window that ends with the page: a page that is present never makes the copy fail.
 */
static __always_inline bool read_stack_word(struct thread* thread, u64 address, u64* word) {
    u64 offset = address - thread->window_start;
    if (offset >= thread->window_size_bytes) {
        u32 size_bytes = WINDOW_BYTES - ((u32)address & (WINDOW_BYTES - 1));
        thread->window_start = address;
        thread->window_size_bytes = 0;
        /* The mask keeps the verifier's bound: "R2 unbounded memory access". */
        if (bpf_probe_read_user(thread->window, ((size_bytes - 1) & (WINDOW_BYTES - 1)) + 1, (const void*)address))
            return false;
        thread->window_size_bytes = size_bytes;
        offset = 0;
    }
    *word = thread->window[(offset / 8) & (WINDOW_BYTES / 8 - 1)];
    return true;
}

struct string_measure {
    struct thread* thread;
    u64 address;
    u64 bytes;
};

static long measure_string(u32 index, struct string_measure* measure) {
    u32 size_bytes = WINDOW_BYTES - ((u32)measure->address & (WINDOW_BYTES - 1));
    size_bytes = ((size_bytes - 1) & (WINDOW_BYTES - 1)) + 1;
    long copied = bpf_probe_read_user_str(measure->thread->window, size_bytes, (const void*)measure->address);
    if (copied <= 0) return 1;
    measure->bytes += copied;
    if (copied < size_bytes) return 1;
    /* The last byte of a part that did not end is put to 0 all the same. */
    char last = 1;
    bpf_probe_read_user(&last, 1, (const void*)(measure->address + size_bytes - 1));
    measure->address += size_bytes;
    return last ? 0 : 1;
}

/* Bytes of the string at `address` with its 0; of a very long one, or where it cannot be read, up to there. */
__noinline u64 string_bytes(struct thread* thread, u64 address) {
    if (!thread) return 0;
    thread->window_size_bytes = 0;
    struct string_measure measure = {.thread = thread, .address = address};
    bpf_loop(MAX_STRING_PAGES, measure_string, &measure, 0);
    return measure.bytes;
}
