/* The live table and the sums per call site. A block is in one of the slots of its bucket, or in the overflow table.
 * Slots are claimed and released by compare-and-swap on the key, which holds the owner: a racing delete can never take
 * another owner's block. */
#pragma once

#include "config.h"
#include "events.h"
#include "maps.h"
#include "memtrace/sampling_abi.h"
#include "runtimes.h"
#include "sampling.h"
#include "targets.h"

static __always_inline struct mt_bucket* bucket_of(u64 key) {
    u32 index = MT_BUCKET_OF(key) & live_bucket_mask;
    return bpf_map_lookup_elem(&live_blocks, &index);
}

/* The block `key` is about to be looked for: its bucket is loaded while something else is done. */
static __always_inline void expect_block(u64 key) {
    const volatile struct mt_bucket* bucket = bucket_of(key);
    if (!bucket) return;
    (void)bucket->keys[0];
    (void)bucket->blocks[0].site;
}

static __always_inline u64 packed_size(const struct held_block* held) {
    u64 code = samples ? mt_mean_code(held->sampling_mean_bytes) : 0;
    return held->size_bytes | code << MT_BLOCK_SIZE_BITS;
}

static __always_inline struct mt_block block_of(const struct held_block* held) {
    return (struct mt_block){packed_size(held), held->birth_ns, held->site, held->forks};
}

static __always_inline struct held_block held_of(const struct mt_block* block) {
    return (struct held_block){
        .size_bytes = block->size_and_mean & MT_BLOCK_SIZE_MASK,
        .birth_ns = block->birth_ns,
        .site = block->site,
        .forks = block->forks,
        .sampling_mean_bytes = samples ? mt_mean_of(block->size_and_mean >> MT_BLOCK_SIZE_BITS) : 0};
}

/* The block `key` of the overflow table; 0 if it is not there. */
static __always_inline struct mt_block* overflow_block(u64 key) {
    return overflow_blocks > 0 ? bpf_map_lookup_elem(&live_overflow, &key) : 0;
}

/* Takes the block `key` out of the table into `held`; false if it is not there. */
__noinline int take_block(u64 key, struct held_block* held) {
    struct mt_bucket* bucket = bucket_of(key);
    if (!held || !bucket) return false;
    for (u32 slot = 0; slot < MT_BUCKET_SLOTS; slot++) {
        if (bucket->keys[slot] != key) continue;
        *held = held_of(&bucket->blocks[slot]);
        if (__sync_val_compare_and_swap(&bucket->keys[slot], key, 0) == key) return true;
    }
    const struct mt_block* block = overflow_block(key);
    if (!block) return false;
    *held = held_of(block);
    if (bpf_map_delete_elem(&live_overflow, &key)) return false;
    __sync_fetch_and_add(&overflow_blocks, -1);
    return true;
}

/* As take_block, and says which slot of the bucket is the first that is free, if one is: one look for both. */
__noinline int take_stale_block(u64 key, struct held_block* held, u32* free_slot) {
    const struct mt_bucket* bucket = bucket_of(key);
    if (!held || !free_slot || !bucket) return false;
    bool is_there = false;
    for (u32 slot = MT_BUCKET_SLOTS; slot > 0; slot--) {
        u64 other = bucket->keys[slot - 1];
        if (other == 0) *free_slot = slot - 1;
        is_there |= other == key;
    }
    return is_there || overflow_blocks > 0 ? take_block(key, held) : false;
}

/* Puts a block into the table; false when neither a slot from `from_slot` on nor the overflow table has room. */
__noinline int put_block(u64 key, const struct held_block* held, u32 from_slot) {
    struct mt_bucket* bucket = bucket_of(key);
    if (!held || !bucket) return false;
    for (u32 slot = 0; slot < MT_BUCKET_SLOTS; slot++) {
        if (slot < from_slot || bucket->keys[slot] != 0) continue;
        if (__sync_val_compare_and_swap(&bucket->keys[slot], 0, MT_BLOCK_BUSY) != 0) continue;
        bucket->blocks[slot] = block_of(held);
        /* The exchange is the release: whoever reads the key sees the block. */
        __sync_lock_test_and_set(&bucket->keys[slot], key);
        return true;
    }
    struct mt_block block = block_of(held);
    /* Counted before it is there, so that nobody who may look for it is told that there is nothing. */
    __sync_fetch_and_add(&overflow_blocks, 1);
    if (bpf_map_update_elem(&live_overflow, &key, &block, BPF_NOEXIST) == 0) return true;
    __sync_fetch_and_add(&overflow_blocks, -1);
    return false;
}

/* What a block adds to the sums of its site. */
struct share {
    u64 size_bytes;
    u64 blocks;
};

__noinline u64 sampling_weight(u64 size_bytes, u32 mean_bytes) {
    return mt_sampling_weight(size_bytes, mean_bytes);
}

static __always_inline struct share share_of(const struct held_block* block) {
    if (!samples) return (struct share){block->size_bytes, 1};
    u64 weight = MT_WEIGHT_ONE;
    if (block->sampling_mean_bytes > 1) weight = sampling_weight(block->size_bytes, block->sampling_mean_bytes);
    return (struct share){mt_sampled_bytes(block->size_bytes, weight), mt_sampled_blocks(weight)};
}

static __always_inline void add_allocation(const struct held_block* block, s64 sign) {
    u32 site_index = block->site;
    struct mt_site* site = bpf_map_lookup_elem(&sites, &site_index);
    if (!site) return;
    struct share share = share_of(block);
    __sync_fetch_and_add(&site->allocated_bytes, share.size_bytes * sign);
    __sync_fetch_and_add(&site->allocations, share.blocks * sign);
}

static __always_inline void add_free(struct mt_owner* owner, const struct held_block* held) {
    u32 site_index = held->site;
    __sync_fetch_and_add(&owner->live_blocks, -1);
    struct mt_site* site = bpf_map_lookup_elem(&sites, &site_index);
    if (!site) return;
    struct share share = share_of(held);
    __sync_fetch_and_add(&site->freed_bytes, share.size_bytes);
    __sync_fetch_and_add(&site->frees, share.blocks);
}

__noinline int leave_ghost(struct mt_owner* owner, u64 key); /* inheritance.h */

/* To the kernel's tick, 1 to 10 ms: the exact clock, which costs as much as a walk of three frames, is read once a
 * tick. A collector compares the time with its own, and blocks that were born at one address, of which children hold
 * some, are told apart by it: theirs is exact. */
static __always_inline u64 birth_time_ns(const struct mt_owner* owner, u32 row) {
    u64 tick = bpf_jiffies64();
    if (tick == last_tick && !owner->holders && !is_collected(row)) return last_tick_ns;
    u64 now_ns = bpf_ktime_get_ns();
    last_tick_ns = now_ns;
    /* Later, so that the tick is not known before its time. */
    __sync_lock_test_and_set(&last_tick, tick);
    return now_ns;
}

/* Records a new block at `site` (0: the owner's "stack unknown"). A block that is still there has an unseen free, or it
 * was collected. */
static __always_inline void record_block(struct mt_owner* owner, u32 serial, u64 address, const struct call* call,
                                         u32 site) {
    u64 key = MT_BLOCK_KEY(serial, address);
    struct held_block stale = {};
    if (owner->holders && is_collected(call->row)) leave_ghost(owner, key);
    u32 free_slot = 0;
    if (take_stale_block(key, &stale, &free_slot)) {
        add_free(owner, &stale);
        if (!is_collected(call->row)) count(owner, MT_COUNT_FREES_MISSED);
    }
    if (is_collected(call->row)) note_collections(owner);
    if (owner->live_blocks >= max_owner_blocks) {
        count(owner, MT_COUNT_BLOCKS_QUOTA);
        return;
    }
    u64 size_bytes = call->size_bytes;
    struct held_block block = {.size_bytes = size_bytes,
                               .birth_ns = birth_time_ns(owner, call->row),
                               .site = site ? site : owner->fallback_site,
                               .forks = owner->forks,
                               .sampling_mean_bytes = call->sampling_mean_bytes};
    /* Summed before it can be found: a racing free must never be summed first. */
    add_allocation(&block, 1);
    __sync_fetch_and_add(&owner->live_blocks, 1);
    if (!put_block(key, &block, free_slot)) {
        add_allocation(&block, -1);
        __sync_fetch_and_add(&owner->live_blocks, -1);
        count(owner, MT_COUNT_BLOCKS_LIVE_TABLE_FULL);
        return;
    }
    if (traces_blocks && !emit_block_event(MT_EVENT_ALLOC, serial, address, size_bytes, block.site, call->row))
        count(owner, MT_COUNT_EVENTS_RING_FULL);
}

/* The block was recorded for a call inside of one that owns it: as if it had not been. */
__noinline int disown_block(struct mt_owner* owner, u64 key) {
    struct held_block block = {};
    if (!owner || !take_block(key, &block)) return 0;
    add_allocation(&block, -1);
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
