/* The call site that an allocation's stack names. Frames leave the kernel once, when their site is new. */
#pragma once

#include "config.h"
#include "events.h"
#include "maps.h"
#include "targets.h"
#include "unwind.h"

/* Sends the stack of thread->frames as that of `site`. */
static __always_inline bool emit_site(struct thread* thread, u32 site) {
    u32 frame_count = thread->frame_count;
    if (frame_count > MT_MAX_FRAMES) return false;
    struct mt_site_event* event = bpf_ringbuf_reserve(&ring, sizeof *event, 0);
    if (!event) return false;
    fill_header(&event->header, MT_EVENT_SITE, thread->owner);
    event->site = site;
    event->frame_count = frame_count;
    /* Linux 6.1 has forgotten the bound by now: "R2 unbounded memory access"; hidden from clang, which has not. */
    asm volatile("" : "+r"(frame_count));
    bpf_probe_read_kernel(event->frames, (frame_count & MT_MAX_FRAMES) * 8, thread->frames);
    bpf_ringbuf_submit(event, wakeup_at(event->header.time_ns));
    return true;
}

/* The pages from that of `address` up to the first that is not there; how many bytes were copied. */
static __always_inline u32 copy_pages(mt_u8* to, u64 address) {
    u64 start = address & ~(WINDOW_BYTES - 1ull);
    u32 copied = 0;
    for (u32 page = 0; page < MT_RAW_STACK_BYTES / WINDOW_BYTES; page++) {
        u32 offset = page * WINDOW_BYTES;
        if (bpf_probe_read_user(to + offset, WINDOW_BYTES, (const void*)(start + offset))) break;
        copied = offset + WINDOW_BYTES;
    }
    return copied;
}

/* A site that is not given yet or was given back, for `owner`, and its number; 0 when there is none, which is counted.
 */
static __always_inline struct mt_site* next_site(struct mt_owner* owner, u32* index) {
    if (owner->sites >= max_owner_sites) {
        count(owner, MT_COUNT_STACKS_QUOTA);
        return 0;
    }
    /* Looked at first: a full table must not let the number wrap. */
    *index = sites_given < max_sites ? __sync_fetch_and_add(&sites_given, 1) + 1 : max_sites;
    if (*index >= max_sites && bpf_map_pop_elem(&free_sites, index)) *index = max_sites;
    struct mt_site* site = *index < max_sites ? bpf_map_lookup_elem(&sites, index) : 0;
    if (site)
        __sync_fetch_and_add(&owner->sites, 1);
    else
        count(owner, MT_COUNT_STACKS_SITES_FULL);
    return site;
}

/* Raw stacks are large, and each takes a call site: they leave half of the ring, and most sites, to what cannot do
 * without. */
static __always_inline bool raw_stack_has_room(void) {
    if (raw_sites_given >= max_sites / 8) return false;
    return bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) <= bpf_ringbuf_query(&ring, BPF_RB_RING_SIZE) / 2;
}

/* A walk that met code without a table: the user side ends it, for a site of its own. 0 when there is no room. */
__noinline u32 make_raw_site(struct thread* thread, struct mt_owner* owner, u32 row) {
    if (!thread || !owner) return 0;
    u32 frame_count = thread->frame_count;
    struct mt_raw_stack_event* event = bpf_ringbuf_reserve(&ring, sizeof *event, 0);
    if (!event) {
        count(owner, MT_COUNT_STACKS_RING_FULL);
        return 0;
    }
    if (frame_count > MT_MAX_FRAMES) frame_count = 0;
    /* Linux 6.1 has forgotten the bound by now: "R2 unbounded memory access"; hidden from clang, which has not. */
    asm volatile("" : "+r"(frame_count));
    bpf_probe_read_kernel(event->frames, (frame_count & MT_MAX_FRAMES) * 8, thread->frames);
    event->frame_count = frame_count;
    u32 index;
    struct mt_site* site = next_site(owner, &index);
    if (!site) {
        bpf_ringbuf_discard(event, BPF_RB_NO_WAKEUP);
        return 0;
    }
    __sync_fetch_and_add(&raw_sites_given, 1);
    site->key = (struct mt_site_key){.stack_hash = {index}, .owner = thread->owner, .row = row};
    site->flags = MT_SITE_READY | MT_SITE_STACK_SENT_RAW;
    fill_header(&event->header, MT_EVENT_RAW_STACK, thread->owner);
    event->site = index;
    event->pc = thread->pc;
    event->stack_pointer = thread->stack_pointer;
    event->frame_pointer = thread->frame_pointer;
    event->is_interrupted = thread->is_interrupted;
    event->stack_bytes = copy_pages(event->stack, thread->stack_pointer);
    bpf_ringbuf_submit(event, wakeup_at(event->header.time_ns));
    return index;
}

/* A site whose stack found the ring full is not lost: the next allocation at it sends the stack. */
__noinline int send_stack_again(struct thread* thread, struct mt_owner* owner, struct mt_site* site, u32 index) {
    if (!thread || !owner || !site || !emit_site(thread, index)) return 0;
    if (__sync_fetch_and_and(&site->flags, ~MT_SITE_STACK_UNKNOWN) & MT_SITE_STACK_UNKNOWN)
        __sync_fetch_and_add(&owner->counters[MT_COUNT_STACKS_RING_FULL], -1);
    return 0;
}

/* Makes the call site `wanted` and sends its stack, once; 0 when there is no room for it. */
__noinline u32 make_site(struct thread* thread, struct mt_owner* owner, struct mt_site_key* wanted) {
    if (!thread || !owner || !wanted) return 0;
    u32 index;
    /* Linux 6.1 takes no key from there: "R2 type=mem expected=fp, pkt, pkt_meta, map_key, map_value". */
    struct mt_site_key key = *wanted;
    struct mt_site* site = next_site(owner, &index);
    if (!site) return 0;
    if (bpf_map_update_elem(&sites_by_key, &key, &index, BPF_NOEXIST)) {
        bpf_map_push_elem(&free_sites, &index, BPF_ANY);
        __sync_fetch_and_add(&owner->sites, -1);
        u32* other = bpf_map_lookup_elem(&sites_by_key, &key);
        if (!other) count(owner, MT_COUNT_STACKS_SITES_FULL);
        return other ? *other : 0;
    }
    u32 flags = MT_SITE_READY | thread->walk_flags;
    if (!emit_site(thread, index)) {
        flags |= MT_SITE_STACK_UNKNOWN;
        count(owner, MT_COUNT_STACKS_RING_FULL);
    }
    site->key = key;
    site->flags = flags;
    return index;
}

/* The call site of the stack in thread->frames; 0 when it could not be recorded, which has been counted. */
static __always_inline u32 find_site(struct thread* thread, struct mt_owner* owner, u32 row) {
    struct mt_site_key key = {.stack_hash = {thread->hash[0], thread->hash[1]}, .owner = thread->owner, .row = row};
    if (thread->walk_flags & MT_SITE_STACK_SENT_RAW) {
        if (raw_stack_has_room()) return make_raw_site(thread, owner, row);
        thread->walk_flags = MT_SITE_STACK_NOT_SENT;
    }
    if (thread->walk_flags & (MT_SITE_STACK_TRUNCATED | MT_SITE_STACK_NOT_SENT))
        count(owner, MT_COUNT_STACKS_TRUNCATED);
    u32* known = bpf_map_lookup_elem(&sites_by_key, &key);
    if (!known) return make_site(thread, owner, &key);
    u32 index = *known;
    struct mt_site* site = bpf_map_lookup_elem(&sites, &index);
    if (site && (site->flags & MT_SITE_STACK_UNKNOWN)) send_stack_again(thread, owner, site, index);
    return index;
}
