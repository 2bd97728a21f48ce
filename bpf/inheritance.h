/* What a fork child inherits. Nothing is copied at fork: a child holds the blocks that its parent had then, told by the
 * forks that the parent had made when the block was born and when it was given back, but for those that the child gave
 * back itself. A parent that frees such a block leaves a ghost; a child's free of one is noted. What was inherited is
 * put together by the user side (heap/inheritance); here it is only told from what was there before the attach. */
#pragma once

#include "config.h"
#include "ledger.h"
#include "maps.h"
#include "owners.h"

/* Parents that a free looks through; beyond, the user side has to say whether it was inherited. */
#define MAX_ANCESTORS 8

/* The live block `key`; false if it is not there. */
__noinline int peek_block(u64 key, struct held_block* held) {
    const struct mt_bucket* bucket = bucket_of(key);
    if (!held || !bucket) return false;
    for (u32 slot = 0; slot < MT_BUCKET_SLOTS; slot++) {
        if (bucket->keys[slot] != key) continue;
        *held = held_of(&bucket->blocks[slot]);
        return true;
    }
    const struct mt_block* block = overflow_block(key);
    if (!block) return false;
    *held = held_of(block);
    return true;
}

/* `owner` is about to give back the block `key`, and has children. The ghost is there before the block is gone: a child
 * that looks for both, the block first, finds one. */
__noinline int leave_ghost(struct mt_owner* owner, u64 key) {
    struct held_block held = {};
    if (!owner || !peek_block(key, &held)) return 0;
    u32 forks = owner->forks;
    if (held.forks >= forks) return 0;
    struct mt_ghost_key ghost_key = {.block = key, .forks = forks};
    struct mt_block ghost = block_of(&held);
    if (bpf_map_update_elem(&ghosts, &ghost_key, &ghost, BPF_ANY)) {
        count(owner, MT_COUNT_INHERITED_LOST);
        return 0;
    }
    if (forks - held.forks <= MT_GHOST_TRIES) return 0;
    ghost_key.forks = MT_GHOST_OF_MANY;
    if (bpf_map_update_elem(&ghosts, &ghost_key, &ghost, BPF_ANY)) count(owner, MT_COUNT_INHERITED_LOST);
    return 0;
}

/* Did, or may, the owner of the block `key` have it when it made its fork `number`? */
__noinline int had_at_fork(u64 key, u32 number) {
    struct held_block held = {};
    if (peek_block(key, &held) && held.forks < number) return true;
    struct mt_ghost_key ghost_key = {.block = key};
    for (u32 try = 0; try < MT_GHOST_TRIES; try++) {
        ghost_key.forks = number + try;
        const struct mt_block* ghost = bpf_map_lookup_elem(&ghosts, &ghost_key);
        if (ghost && ghost->forks < number) return true;
    }
    ghost_key.forks = MT_GHOST_OF_MANY;
    return bpf_map_lookup_elem(&ghosts, &ghost_key) != 0;
}

struct ancestor_search {
    u64 address;
    u32 serial;
    u32 number; /* of the fork of `serial` that leads to the child */
    bool is_found;
};

static long search_ancestor(u32 index, struct ancestor_search* search) {
    const struct mt_owner* ancestor = find_owner(search->serial);
    if (!ancestor) return 1;
    u64 key = MT_BLOCK_KEY(search->serial, search->address);
    if (had_at_fork(key, search->number)) {
        search->is_found = true;
        return 1;
    }
    const struct mt_inherited_free* freed = bpf_map_lookup_elem(&inherited_frees, &key);
    if (freed && freed->forks < search->number) return 1;
    search->serial = ancestor->parent_owner;
    search->number = ancestor->fork_number;
    /* So far up that nobody looked: the user side will. */
    search->is_found = index == MAX_ANCESTORS - 1 && search->serial;
    return 0;
}

/* `serial` frees what is at `address` and is not its own. Returns whether that may be an inherited block, which is
 * noted then. */
__noinline int free_inherited(struct mt_owner* owner, u32 serial, u64 address) {
    if (!owner) return false;
    struct ancestor_search search = {.address = address, .serial = owner->parent_owner, .number = owner->fork_number};
    bpf_loop(MAX_ANCESTORS, search_ancestor, &search, 0);
    if (!search.is_found) return false;
    u64 key = MT_BLOCK_KEY(serial, address);
    if (bpf_map_lookup_elem(&inherited_frees, &key)) return false;
    struct mt_inherited_free freed = {.forks = owner->forks};
    if (bpf_map_update_elem(&inherited_frees, &key, &freed, BPF_NOEXIST)) count(owner, MT_COUNT_INHERITED_LOST);
    return true;
}

/* A block that is in no table was given back: an inherited one, or one from before the attach. */
static __always_inline void record_unknown_free(struct mt_owner* owner, u32 serial, u64 address) {
    if (owner->parent_owner && free_inherited(owner, serial, address)) return;
    /* Of a block that was not sampled, most likely. */
    if (!samples) count(owner, MT_COUNT_UNKNOWN_FREES);
}
