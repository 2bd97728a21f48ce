/* Which address space is this, is it ours, and when does it end? An owner is an address space, known by a serial number
 * because pids and mm pointers are used again. */
#pragma once

#include "config.h"
#include "events.h"
#include "maps.h"

static __always_inline void count(struct mt_owner* owner, enum mt_counter counter) {
    __sync_fetch_and_add(&owner->counters[counter & (MT_COUNTERS - 1)], 1);
}

static __always_inline struct mt_owner* find_owner(u32 serial) {
    if (serial == 0) return 0;
    return bpf_map_lookup_elem(&owners, &serial);
}

/* The process whose address space `task` is in: a vfork child's is its parent's. */
static __always_inline u32 owning_tgid(struct task_struct* task) {
    struct task_struct* parent = task->real_parent;
    return parent->mm == task->mm ? parent->tgid : task->tgid;
}

/* A new serial for the current address space, or that which another thread gave it meanwhile. The kernel pointer is
 * read here because a global function takes only scalars: "R1 is not a scalar". */
__noinline u32 make_owner(void) {
    struct task_struct* task = bpf_get_current_task_btf();
    u64 mm = (u64)task->mm;
    u32 tgid = owning_tgid(task);
    struct mt_target* target = bpf_map_lookup_elem(&targets, &tgid);
    if (!target || target->armed != MT_TARGET_ARMED) return 0;
    u32 serial = __sync_fetch_and_add(&owners_given, 1) + 1;
    struct mt_owner* owner = serial < MT_MAX_OWNERS ? find_owner(serial) : 0;
    if (!owner) {
        __sync_fetch_and_add(&owners_not_recorded, 1);
        return 0;
    }
    owner->mm = mm;
    owner->first_seen_ns = bpf_ktime_get_ns();
    owner->flags = MT_OWNER_ARMED;
    if (bpf_map_update_elem(&owners_by_mm, &mm, &serial, BPF_NOEXIST)) {
        owner->flags = 0; /* tgid stays 0: this serial is never used */
        u32* other = bpf_map_lookup_elem(&owners_by_mm, &mm);
        if (!other) __sync_fetch_and_add(&owners_not_recorded, 1);
        return other ? *other : 0;
    }
    owner->tgid = tgid;
    target->owner = serial;
    u32 fallback = max_sites + serial;
    struct mt_site* site = bpf_map_lookup_elem(&sites, &fallback);
    if (site) {
        site->key.owner = serial;
        site->flags = MT_SITE_READY | MT_SITE_STACK_UNKNOWN;
    }
    owner->fallback_site = fallback;
    if (!emit_process_event(MT_EVENT_OWNER, serial, tgid, 0)) count(owner, MT_COUNT_EVENTS_RING_FULL);
    return serial;
}

/* This thread's state when its address space is armed, 0 otherwise. `*owner` is set with it. */
static __always_inline struct thread* traced_thread(struct mt_owner** owner) {
    if (!is_armed) return 0;
    struct task_struct* task = bpf_get_current_task_btf();
    u64 mm = (u64)task->mm;
    struct thread* thread = bpf_task_storage_get(&threads, task, 0, 0);
    if (!thread || thread->mm != mm || !thread->owner) {
        u32* known = bpf_map_lookup_elem(&owners_by_mm, &mm);
        u32 serial = known ? *known : make_owner();
        if (!serial) return 0;
        if (!thread) thread = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
        if (!thread) {
            __sync_fetch_and_add(&owners_not_recorded, 1);
            return 0;
        }
        thread->mm = mm;
        thread->owner = serial;
        thread->calls.depth = 0;
    }
    *owner = find_owner(thread->owner);
    if (!*owner || !((*owner)->flags & MT_OWNER_ARMED)) return 0;
    return thread;
}

/* Ends the address space that `target` is in; its numbers stay. */
static __always_inline void end_owner(struct mt_target* target, u32 exit_code) {
    struct mt_owner* owner = find_owner(target->owner);
    target->owner = 0;
    if (!owner) return;
    owner->ended_ns = bpf_ktime_get_ns();
    owner->exit_code = exit_code;
    owner->flags = MT_OWNER_ENDED;
    u64 mm = owner->mm;
    bpf_map_delete_elem(&owners_by_mm, &mm);
}
