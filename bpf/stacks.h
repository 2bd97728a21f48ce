/* The stack of an allocation and the call site that it names. The walk follows frame pointers; the caller of the
 * allocator is always known (it is what the function returns to). Frames leave the kernel once, when their site is new.
 */
#pragma once

#include "arguments.h"
#include "config.h"
#include "events.h"
#include "maps.h"
#include "targets.h"

/* Farther up than this a saved frame pointer is data, not a frame. */
#define FRAME_MAX_BYTES (1ull << 20)
#define LOWEST_CODE_ADDRESS 0x1000

static __always_inline void add_frame(struct thread* thread, u64 return_address) {
    u32 index = thread->frame_count;
    if (index >= MT_MAX_FRAMES) return;
    thread->frames[index & MT_MAX_FRAMES] = return_address;
    thread->frame_count = index + 1;
    u64 first = (thread->hash[0] ^ return_address) * 0xff51afd7ed558ccdull;
    thread->hash[0] = first ^ (first >> 32);
    u64 second = (thread->hash[1] + return_address) * 0x9e3779b97f4a7c15ull;
    thread->hash[1] = second ^ (second >> 29);
}

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

static long walk_frame(u32 index, struct thread** context) {
    struct thread* thread = *context;
    u64 frame = thread->frame_pointer, caller_frame, return_address;
    if ((frame & 7) || frame < thread->stack_pointer || frame - thread->stack_pointer > FRAME_MAX_BYTES) return 1;
    if (!read_stack_word(thread, frame, &caller_frame)) return 1;
    if (!read_stack_word(thread, frame + 8, &return_address) || return_address < LOWEST_CODE_ADDRESS) return 1;
    if (thread->frame_count >= max_stack) {
        thread->walk_flags |= MT_SITE_STACK_TRUNCATED;
        return 1;
    }
    add_frame(thread, return_address);
    thread->stack_pointer = frame + 16;
    thread->frame_pointer = caller_frame;
    return 0;
}

/* Fills thread->frames: `caller`, then what the chain of frame pointers from `frame` gives. `sp` is the caller's. */
__noinline int walk_stack(struct thread* thread, u64 caller, u64 sp, u64 frame) {
    if (!thread) return 0;
    thread->frame_count = 0;
    thread->walk_flags = 0;
    thread->window_size_bytes = 0;
    thread->hash[0] = thread->hash[1] = 0;
    thread->stack_pointer = sp;
    thread->frame_pointer = frame;
    add_frame(thread, caller);
    bpf_loop(MT_MAX_FRAMES, walk_frame, &thread, 0);
    return 0;
}

/* Sends the stack of thread->frames as that of `site`. */
static __always_inline bool emit_site(struct thread* thread, u32 site) {
    u32 frame_count = thread->frame_count;
    if (frame_count > MT_MAX_FRAMES) return false;
    struct mt_site_event* event = bpf_ringbuf_reserve(&ring, sizeof *event, 0);
    if (!event) return false;
    fill_header(&event->header, MT_EVENT_SITE, thread->owner);
    event->site = site;
    event->frame_count = frame_count;
    bpf_probe_read_kernel(event->frames, frame_count * 8, thread->frames);
    bpf_ringbuf_submit(event, 0);
    return true;
}

/* A site whose stack found the ring full is not lost: the next allocation at it sends the stack. */
__noinline int send_stack_again(struct thread* thread, struct mt_owner* owner, struct mt_site* site, u32 index) {
    if (!thread || !owner || !site || !emit_site(thread, index)) return 0;
    if (__sync_fetch_and_and(&site->flags, ~MT_SITE_STACK_UNKNOWN) & MT_SITE_STACK_UNKNOWN)
        __sync_fetch_and_add(&owner->counters[MT_COUNT_STACKS_RING_FULL], -1);
    return 0;
}

/* Makes the call site `key` and sends its stack, once; 0 when there is no room for it. */
__noinline u32 make_site(struct thread* thread, struct mt_owner* owner, struct mt_site_key* key) {
    if (!thread || !owner || !key) return 0;
    /* Looked at first: a full table must not let the number wrap. */
    u32 index = sites_given < max_sites ? __sync_fetch_and_add(&sites_given, 1) + 1 : max_sites;
    struct mt_site* site = index < max_sites ? bpf_map_lookup_elem(&sites, &index) : 0;
    if (!site) {
        count(owner, MT_COUNT_STACKS_SITES_FULL);
        return 0;
    }
    if (bpf_map_update_elem(&sites_by_key, key, &index, BPF_NOEXIST)) {
        u32* other = bpf_map_lookup_elem(&sites_by_key, key);
        if (!other) count(owner, MT_COUNT_STACKS_SITES_FULL);
        return other ? *other : 0;
    }
    u32 flags = MT_SITE_READY | thread->walk_flags;
    if (!emit_site(thread, index)) {
        flags |= MT_SITE_STACK_UNKNOWN;
        count(owner, MT_COUNT_STACKS_RING_FULL);
    }
    site->key = *key;
    site->flags = flags;
    return index;
}

/* The call site of the stack in thread->frames; 0 when it could not be recorded, which has been counted. */
static __always_inline u32 find_site(struct thread* thread, struct mt_owner* owner, u32 row) {
    struct mt_site_key key = {.stack_hash = {thread->hash[0], thread->hash[1]}, .owner = thread->owner, .row = row};
    if (thread->walk_flags & MT_SITE_STACK_TRUNCATED) count(owner, MT_COUNT_STACKS_TRUNCATED);
    u32* known = bpf_map_lookup_elem(&sites_by_key, &key);
    if (!known) return make_site(thread, owner, &key);
    u32 index = *known;
    struct mt_site* site = bpf_map_lookup_elem(&sites, &index);
    if (site && (site->flags & MT_SITE_STACK_UNKNOWN)) send_stack_again(thread, owner, site, index);
    return index;
}
