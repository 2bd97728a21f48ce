/* The live table and the sums per call site. A block is in one of MT_LIVE_WINDOW slots behind its hash, or in the
 * overflow table. Slots are claimed and released by compare-and-swap on the key, which holds the owner: a racing delete
 * can never take another owner's block. */
#pragma once

#include "config.h"
#include "events.h"
#include "maps.h"
#include "targets.h"

static __always_inline u32 first_slot(u64 key) {
    /* Addresses are multiples of 16; the owner's bits must reach the low ones too. */
    return (u32)(((key >> 4) ^ (key >> 48)) * 0x9e3779b97f4a7c15ull >> 32);
}

static __always_inline struct mt_block* slot_at(u32 first, u32 step) {
    u32 slot = (first + step) & live_slot_mask;
    return bpf_map_lookup_elem(&live_blocks, &slot);
}

/* Takes the block `key` out of the table into `held`; false if it is not there. */
__noinline int take_block(u64 key, struct held_block* held) {
    if (!held) return false;
    u32 first = first_slot(key);
    for (u32 step = 0; step < MT_LIVE_WINDOW; step++) {
        struct mt_block* block = slot_at(first, step);
        if (!block || block->key != key) continue;
        held->size_bytes = block->size_bytes;
        held->birth_ns = block->birth_ns;
        held->site = block->site;
        held->forks = block->forks;
        if (__sync_val_compare_and_swap(&block->key, key, 0) == key) return true;
    }
    if (overflow_blocks <= 0) return false;
    struct mt_block* block = bpf_map_lookup_elem(&live_overflow, &key);
    if (!block) return false;
    held->size_bytes = block->size_bytes;
    held->birth_ns = block->birth_ns;
    held->site = block->site;
    held->forks = block->forks;
    if (bpf_map_delete_elem(&live_overflow, &key)) return false;
    __sync_fetch_and_add(&overflow_blocks, -1);
    return true;
}

/* Puts a block into the table; false when neither a slot nor the overflow table has room. */
__noinline int put_block(u64 key, const struct held_block* held) {
    if (!held) return false;
    u32 first = first_slot(key);
    for (u32 step = 0; step < MT_LIVE_WINDOW; step++) {
        struct mt_block* block = slot_at(first, step);
        if (!block || block->key != 0) continue;
        if (__sync_val_compare_and_swap(&block->key, 0, MT_BLOCK_BUSY) != 0) continue;
        block->size_bytes = held->size_bytes;
        block->birth_ns = held->birth_ns;
        block->site = held->site;
        block->forks = held->forks;
        /* The exchange is the release: whoever reads the key sees the fields. */
        __sync_lock_test_and_set(&block->key, key);
        return true;
    }
    struct mt_block block = {key, held->size_bytes, held->birth_ns, held->site, held->forks};
    /* Counted before it is there, so that nobody who may look for it is told that there is nothing. */
    __sync_fetch_and_add(&overflow_blocks, 1);
    if (bpf_map_update_elem(&live_overflow, &key, &block, BPF_NOEXIST) == 0) return true;
    __sync_fetch_and_add(&overflow_blocks, -1);
    return false;
}

static __always_inline void add_allocation(u32 site_index, u64 size_bytes, s64 sign) {
    struct mt_site* site = bpf_map_lookup_elem(&sites, &site_index);
    if (!site) return;
    __sync_fetch_and_add(&site->allocated_bytes, size_bytes * sign);
    __sync_fetch_and_add(&site->allocations, sign);
}

static __always_inline void add_free(struct mt_owner* owner, const struct held_block* held) {
    u32 site_index = held->site;
    __sync_fetch_and_add(&owner->live_blocks, -1);
    struct mt_site* site = bpf_map_lookup_elem(&sites, &site_index);
    if (!site) return;
    __sync_fetch_and_add(&site->freed_bytes, held->size_bytes);
    __sync_fetch_and_add(&site->frees, 1);
}

/* Records a new block at `site` (0: the owner's "stack unknown"). A block that is still there has an unseen free. */
static __always_inline void record_block(struct mt_owner* owner, u32 serial, u64 address, u64 size_bytes, u32 site,
                                         u32 row) {
    u64 key = MT_BLOCK_KEY(serial, address);
    struct held_block stale = {};
    if (take_block(key, &stale)) {
        add_free(owner, &stale);
        count(owner, MT_COUNT_FREES_MISSED);
    }
    if (owner->live_blocks >= max_owner_blocks) {
        count(owner, MT_COUNT_BLOCKS_QUOTA);
        return;
    }
    struct held_block block = {size_bytes, bpf_ktime_get_ns(), site ? site : owner->fallback_site, owner->forks};
    /* Summed before it can be found: a racing free must never be summed first. */
    add_allocation(block.site, size_bytes, 1);
    __sync_fetch_and_add(&owner->live_blocks, 1);
    if (!put_block(key, &block)) {
        add_allocation(block.site, size_bytes, -1);
        __sync_fetch_and_add(&owner->live_blocks, -1);
        count(owner, MT_COUNT_BLOCKS_LIVE_TABLE_FULL);
        return;
    }
    if (traces_blocks && !emit_block_event(MT_EVENT_ALLOC, serial, address, size_bytes, block.site, row))
        count(owner, MT_COUNT_EVENTS_RING_FULL);
}

/* The block was recorded for a call inside of one that owns it: as if it had not been. */
__noinline int disown_block(struct mt_owner* owner, u64 key) {
    struct held_block block = {};
    if (!owner || !take_block(key, &block)) return 0;
    add_allocation(block.site, block.size_bytes, -1);
    __sync_fetch_and_add(&owner->live_blocks, -1);
    return 0;
}

/* Records that a block taken out of the table was given back. */
static __always_inline void record_free(struct mt_owner* owner, u32 serial, u64 address, const struct held_block* held,
                                        u32 row) {
    add_free(owner, held);
    if (traces_blocks && !emit_block_event(MT_EVENT_FREE, serial, address, held->size_bytes, held->site, row))
        count(owner, MT_COUNT_EVENTS_RING_FULL);
}
