/* Which address space is this, is it ours, and when does it end? An owner is an address space, known by a serial number
 * because pids and mm pointers are used again. */
#pragma once

#include "config.h"
#include "events.h"
#include "maps.h"
#include "owners.h"

/* The process whose address space `task` is in: a vfork child's is its parent's. */
static __always_inline u32 owning_tgid(struct task_struct* task) {
    struct task_struct* parent = task->real_parent;
    return parent->mm == task->mm ? parent->tgid : task->tgid;
}

/* A serial that was not given yet, or that was given back; 0 when there is none. */
static __always_inline u32 next_serial(void) {
    u32 serial = 0;
    /* Looked at first: the number must not wrap. */
    if (owners_given < max_owners - 1) serial = __sync_fetch_and_add(&owners_given, 1) + 1;
    if (serial && serial < max_owners) return serial;
    return bpf_map_pop_elem(&free_owners, &serial) ? 0 : serial;
}

/* A new owner for the address space `mm`, or the serial that another thread gave it meanwhile; 0: there is no room. */
__noinline u32 give_owner(u64 mm, u32 tgid, u32 flags) {
    u32 serial = next_serial();
    struct mt_owner* owner = find_owner(serial);
    if (!owner) {
        __sync_fetch_and_add(&owners_not_recorded, 1);
        return 0;
    }
    owner->mm = mm;
    owner->first_seen_ns = bpf_ktime_get_ns();
    owner->flags = flags;
    if (bpf_map_update_elem(&owners_by_mm, &mm, &serial, BPF_NOEXIST)) {
        owner->flags = 0;
        owner->mm = 0;
        bpf_map_push_elem(&free_owners, &serial, BPF_ANY);
        u32* other = bpf_map_lookup_elem(&owners_by_mm, &mm);
        if (!other) __sync_fetch_and_add(&owners_not_recorded, 1);
        return other ? *other : 0;
    }
    owner->tgid = tgid;
    u32 fallback = max_sites + serial;
    struct mt_site* site = bpf_map_lookup_elem(&sites, &fallback);
    if (site) {
        site->key.owner = serial;
        site->flags = MT_SITE_READY | MT_SITE_STACK_UNKNOWN;
    }
    owner->fallback_site = fallback;
    return serial;
}

/* The user side writes the map before it looks for the owner, whose target names it before this. */
static __always_inline void take_collector(u32 serial, u32 tgid) {
    struct mt_owner* owner = find_owner(serial);
    struct mt_collector* collector = bpf_map_lookup_elem(&collectors, &tgid);
    if (!owner || !collector) return;
    owner->type_source = collector->type_source;
    owner->collection_counter = collector->collection_counter;
}

/* A pointer of the kernel as a number: a global function takes none ("R1 is not a scalar"). */
static __always_inline u64 number_at(const void* pointer_to_pointer) {
    u64 number = 0;
    bpf_probe_read_kernel(&number, sizeof number, pointer_to_pointer);
    return number;
}

static __always_inline u64 address_space_of(struct task_struct* task) {
    return number_at(&task->mm);
}

/* A process that is wanted becomes a target; 0 if there is no room. */
static __always_inline struct mt_target* add_target(u32 tgid) {
    struct mt_target target = {.armed = MT_TARGET_ARMED, .flags = new_target_flags};
    bpf_map_update_elem(&targets, &tgid, &target, BPF_NOEXIST);
    struct mt_target* added = bpf_map_lookup_elem(&targets, &tgid);
    if (!added) __sync_fetch_and_add(&owners_not_recorded, 1);
    return added;
}

/* The serial of the current address space, which is new. */
__noinline u32 make_owner(void) {
    struct task_struct* task = bpf_get_current_task_btf();
    u32 tgid = owning_tgid(task);
    struct mt_target* target = bpf_map_lookup_elem(&targets, &tgid);
    if (!target && traces_all && tgid != own_tgid) target = add_target(tgid);
    if (!target || target->armed != MT_TARGET_ARMED) return 0;
    u32 serial = give_owner(address_space_of(task), tgid, MT_OWNER_ARMED);
    struct mt_owner* owner = find_owner(serial);
    if (!owner || target->owner == serial) return serial;
    target->owner = serial;
    take_collector(serial, tgid);
    if (!emit_process_event(MT_EVENT_OWNER, serial, tgid, 0)) count(owner, MT_COUNT_EVENTS_RING_FULL);
    return serial;
}

/* `target`, the current process, has forked a child whose memory is `mm`: a target too, with an owner from the start,
 * so that what it inherits has a date. It has not run yet. 0: the child shares its parent's memory until its exec. */
static __always_inline void follow_child(struct mt_target* target, u32 parent_tgid, u64 mm, u32 tgid) {
    struct mt_owner* parent = find_owner(target->owner);
    struct mt_target child = {.armed = MT_TARGET_ARMED, .flags = target->flags};
    if (mm) {
        if (!arms_children) child.armed = MT_TARGET_FORKED;
        child.owner = give_owner(mm, tgid, arms_children ? MT_OWNER_ARMED : 0);
    }
    struct mt_owner* owner = find_owner(child.owner);
    if (owner && parent) {
        owner->parent_owner = target->owner;
        __sync_fetch_and_add(&parent->holders, 1);
        owner->fork_number = __sync_fetch_and_add(&parent->forks, 1) + 1;
        __sync_fetch_and_add(&forks_followed, 1);
    }
    if (owner) owner->forked_ns = owner->first_seen_ns;
    if (bpf_map_update_elem(&targets, &tgid, &child, BPF_ANY)) __sync_fetch_and_add(&owners_not_recorded, 1);
    u64 time_ns = bpf_ktime_get_ns();
    if (!arms_children) emit_fork_notice(time_ns, child.owner, tgid, parent_tgid);
    bool is_armed_child = child.armed == MT_TARGET_ARMED;
    if (emit_fork_event(time_ns, child.owner, tgid, target->owner, parent_tgid, is_armed_child)) return;
    if (parent)
        count(parent, MT_COUNT_EVENTS_RING_FULL);
    else
        __sync_fetch_and_add(&owners_not_recorded, 1);
}

/* This thread's state when its address space is armed, 0 otherwise. `*owner` is set with it. */
static __always_inline struct thread* traced_thread(struct mt_owner** owner) {
    if (!is_armed) return 0;
    struct task_struct* task = bpf_get_current_task_btf();
    u64 mm = (u64)task->mm;
    struct thread* thread = bpf_task_storage_get(&threads, task, 0, 0);
    *owner = thread ? find_owner(thread->owner) : 0;
    /* A serial is given again once its address space has ended: it is still this one's when its mm is. */
    if (!*owner || (*owner)->mm != mm) {
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
        thread->untyped_address = 0;
        thread->code_generation = CODE_GENERATION_OF_NONE;
        *owner = find_owner(serial);
        if (!*owner) return 0;
    }
    return (*owner)->flags & MT_OWNER_ARMED ? thread : 0;
}

/* Is this hit counted by another link? While a file changes from targets' own links to one for everybody, each hit runs
 * both programs, that of the newer link first (consumer_add, kernel/events/uprobes.c): the link for everybody says
 * which of the two counts, so that a change in the middle of a hit counts it once. */
static __always_inline bool is_counted_elsewhere(struct thread* thread, u64 cookie, u64 function) {
    if (!(cookie & MT_COOKIE_SHARED)) {
        if (thread->shared_function != function) return false;
        thread->shared_function = 0;
        return true;
    }
    bool counts = shared_files[(cookie >> MT_COOKIE_FILE_SHIFT) & (MT_MAX_PROBED_FILES - 1)];
    thread->shared_function = counts ? function : 0;
    return !counts;
}

/* Ends the address space that `target` is in; its numbers stay until the user side has taken them. */
static __always_inline void end_owner(struct mt_target* target, u32 exit_code) {
    u32 serial = target->owner;
    struct mt_owner* owner = find_owner(serial);
    target->owner = 0;
    if (!owner) return;
    owner->ended_ns = bpf_ktime_get_ns();
    owner->exit_code = exit_code;
    u64 mm = owner->mm;
    owner->mm = 0;
    bpf_map_delete_elem(&owners_by_mm, &mm);
    /* An exchange, so that it is there before the holders are looked at. */
    __sync_lock_test_and_set(&owner->flags, MT_OWNER_ENDED);
    settle_descent(serial);
}
