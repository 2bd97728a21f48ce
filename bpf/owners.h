/* Owners and their line of descent. A child holds what was its parent's when it was forked, so an owner that has ended
 * is needed as long as there are holders: children that live, or that have holders of their own. */
#pragma once

#include "config.h"
#include "maps.h"

/* Ended owners in a row above one that ends: what is farther up is let go. Chains of daemons that fork and exit would
 * else keep the first one's blocks for ever. */
#define MAX_ENDED_ANCESTORS 32

static __always_inline void count(struct mt_owner* owner, enum mt_counter counter) {
    __sync_fetch_and_add(&owner->counters[counter & (MT_COUNTERS - 1)], 1);
}

static __always_inline struct mt_owner* find_owner(u32 serial) {
    if (serial == 0) return 0;
    return bpf_map_lookup_elem(&owners, &serial);
}

/* An owner has no holders any more, or has ended: when both are so, who can hold it above is told. The first to see
 * that tells it. */
static long release_upwards(u32 index, u32* serial) {
    struct mt_owner* owner = find_owner(*serial);
    if (!owner || !(owner->flags & MT_OWNER_ENDED) || owner->holders) return 1;
    if (__sync_fetch_and_or(&owner->flags, MT_OWNER_UNHELD) & MT_OWNER_UNHELD) return 1;
    *serial = owner->parent_owner;
    struct mt_owner* parent = find_owner(*serial);
    return !parent || __sync_fetch_and_add(&parent->holders, -1) != 1;
}

static long climb_ended(u32 index, u32* serial) {
    struct mt_owner* owner = find_owner(*serial);
    struct mt_owner* parent = owner ? find_owner(owner->parent_owner) : 0;
    if (!parent || !(parent->flags & MT_OWNER_ENDED)) {
        *serial = 0;
        return 1;
    }
    *serial = owner->parent_owner;
    return 0;
}

/* Lets go of what is too far above `owner`, which has ended and is held: its children lose what is live there. */
static __always_inline void cut_descent(struct mt_owner* owner, u32 serial) {
    bpf_loop(MAX_ENDED_ANCESTORS, climb_ended, &serial, 0);
    struct mt_owner* last = find_owner(serial);
    if (!last) return;
    u32 cut = __sync_lock_test_and_set(&last->parent_owner, 0);
    struct mt_owner* ancestor = find_owner(cut);
    if (!ancestor) return;
    __sync_fetch_and_add(&owner->counters[MT_COUNT_INHERITED_LOST], ancestor->live_blocks);
    if (__sync_fetch_and_add(&ancestor->holders, -1) == 1) bpf_loop(MAX_ENDED_ANCESTORS + 1, release_upwards, &cut, 0);
}

/* `serial` has ended. */
__noinline int settle_descent(u32 serial) {
    struct mt_owner* owner = find_owner(serial);
    if (!owner) return 0;
    if (owner->holders) cut_descent(owner, serial);
    u32 from = serial;
    bpf_loop(MAX_ENDED_ANCESTORS + 1, release_upwards, &from, 0);
    return 0;
}
