/* Heaps that a garbage collector looks after: which blocks are older than a collection, and of what type they are. */
#pragma once

#include "arguments.h"
#include "config.h"
#include "maps.h"
#include "targets.h"

static __always_inline bool is_collected(u32 row) {
    return rows[row & (MT_MAX_ROWS - 1)].flags & MT_ROW_COLLECTED;
}

/* Is this the first block that is recorded since a collection? All that were recorded before were born before it. The
 * time is read before it is known that it counts: no block behind the collection is older. */
static __always_inline void note_collections(struct mt_owner* owner) {
    u64 collections;
    if (!owner->collection_counter || !read_word(owner->collection_counter, &collections)) return;
    u64 known = owner->collections, now_ns = bpf_ktime_get_ns();
    collections++;
    if (collections == known || __sync_val_compare_and_swap(&owner->collections, known, collections) != known) return;
    /* Of the first one it is not known when the last collection was. */
    if (known) owner->collected_ns = now_ns;
}

/* One more object of `type` at `site`. */
__noinline int count_typed(struct mt_owner* owner, u32 site, u32 type, u64 size_bytes) {
    if (!owner) return 0;
    struct mt_typed_site_key key = {.site = site, .type = type, .size_bytes = size_bytes};
    u64* known = bpf_map_lookup_elem(&typed_sites, &key);
    u64 none = 0;
    if (!known) {
        bpf_map_update_elem(&typed_sites, &key, &none, BPF_NOEXIST);
        known = bpf_map_lookup_elem(&typed_sites, &key);
    }
    if (known)
        __sync_fetch_and_add(known, 1);
    else
        count(owner, MT_COUNT_TYPES_FULL);
    return 0;
}

/* The object that a thread allocated last has its type by now: it is written after the allocation. */
__noinline int count_type(struct thread* thread, struct mt_owner* owner) {
    u32 type;
    if (!thread || !owner) return 0;
    u64 address = thread->untyped_address;
    thread->untyped_address = 0;
    if (bpf_probe_read_user(&type, sizeof type, (const void*)address) || !type || type >= MT_MAX_TYPES) return 0;
    return count_typed(owner, thread->untyped_site, type, thread->untyped_size_bytes);
}

/* The block is an object whose type is read when the thread allocates again. */
static __always_inline void note_untyped(struct thread* thread, const struct mt_owner* owner, u64 address,
                                         u64 size_bytes, u32 site) {
    /* What a sampled object stands for is not counted by type. */
    if (samples || owner->type_source == MT_TYPE_NONE || size_bytes < sizeof(u32)) return;
    thread->untyped_address = address;
    thread->untyped_size_bytes = size_bytes;
    thread->untyped_site = site ? site : owner->fallback_site;
}
