/* The slow streams over the ring buffer. Each returns false when the ring was full; the caller counts.
 *
 * To wake the user side takes longer than all the rest of an event (20 us in a virtual machine), and the program waits
 * for it. What can wait is announced once in MT_WAKEUP_INTERVAL_NS; the user side looks again after that time. */
#pragma once

#include "config.h"
#include "maps.h"
#include "memtrace/mapping_abi.h"

static __always_inline void fill_header(struct mt_event* header, u32 type, u32 owner) {
    u64 thread = bpf_get_current_pid_tgid();
    header->type = type;
    header->owner = owner;
    header->time_ns = bpf_ktime_get_ns();
    header->tgid = thread >> 32;
    header->tid = (u32)thread;
}

/* The flags with which an event is submitted that can wait. */
__noinline u64 wakeup_at(u64 time_ns) {
    u64 ring_size_bytes = bpf_ringbuf_query(&ring, BPF_RB_RING_SIZE);
    bool is_filling = bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) > ring_size_bytes / 8;
    u64 interval_ns = is_filling ? MT_WAKEUP_INTERVAL_NS / 16 : MT_WAKEUP_INTERVAL_NS;
    if (time_ns - last_wakeup_ns < interval_ns) return BPF_RB_NO_WAKEUP;
    last_wakeup_ns = time_ns;
    return BPF_RB_FORCE_WAKEUP;
}

static __always_inline bool emit_process_event(u32 type, u32 owner, u32 tgid, u32 exit_code) {
    struct mt_process_event* event = bpf_ringbuf_reserve(&ring, sizeof *event, 0);
    if (!event) return false;
    fill_header(&event->header, type, owner);
    event->header.tgid = tgid;
    event->exit_code = exit_code;
    event->parent_tgid = event->parent_owner = event->is_armed = 0;
    bpf_get_current_comm(event->comm, sizeof event->comm);
    bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
    return true;
}

/* Of a child that is not armed; see struct mt_fork_notice. */
static __always_inline void emit_fork_notice(u64 time_ns, u32 owner, u32 tgid, u32 parent_tgid) {
    struct mt_fork_notice notice = {.time_ns = time_ns, .tgid = tgid, .parent_tgid = parent_tgid, .owner = owner};
    bpf_ringbuf_output(&fork_notices, &notice, sizeof notice, BPF_RB_FORCE_WAKEUP);
}

static __always_inline bool emit_fork_event(u64 time_ns, u32 owner, u32 tgid, u32 parent_owner, u32 parent_tgid,
                                            u32 is_armed_child) {
    struct mt_process_event* event = bpf_ringbuf_reserve(&ring, sizeof *event, 0);
    if (!event) return false;
    fill_header(&event->header, MT_EVENT_FORK, owner);
    event->header.time_ns = time_ns;
    event->header.tgid = tgid;
    event->exit_code = 0;
    event->is_armed = is_armed_child;
    event->parent_tgid = parent_tgid;
    event->parent_owner = parent_owner;
    bpf_get_current_comm(event->comm, sizeof event->comm);
    bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
    return true;
}

/* `path` is kernel memory. */
static __always_inline bool emit_cgroup_event(u32 type, u64 path) {
    struct mt_cgroup_event* event = bpf_ringbuf_reserve(&ring, sizeof *event, 0);
    if (!event) return false;
    fill_header(&event->header, type, 0);
    bpf_probe_read_kernel_str(event->path, sizeof event->path, (const void*)path);
    bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
    return true;
}

static __always_inline bool emit_file_event(u32 owner, const struct mt_file* file, u64 address) {
    struct mt_file_event* event = bpf_ringbuf_reserve(&ring, sizeof *event, 0);
    if (!event) return false;
    fill_header(&event->header, MT_EVENT_FILE, owner);
    event->file = *file;
    event->address = address;
    bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
    return true;
}

static __always_inline bool emit_block_event(u32 type, u32 owner, u64 address, u64 size_bytes, u32 site, u32 row) {
    struct mt_block_event* event = bpf_ringbuf_reserve(&ring, sizeof *event, 0);
    if (!event) return false;
    fill_header(&event->header, type, owner);
    event->address = address;
    event->size_bytes = size_bytes;
    event->site = site;
    event->row = row;
    bpf_ringbuf_submit(event, wakeup_at(event->header.time_ns));
    return true;
}

static __always_inline bool emit_mapping_event(u32 type, u32 owner, const struct call* call, u64 address,
                                               u64 size_bytes, u32 site, u64 caller) {
    struct mt_mapping_event* event = bpf_ringbuf_reserve(&ring, sizeof *event, 0);
    if (!event) return false;
    fill_header(&event->header, type, owner);
    event->address = address;
    event->size_bytes = size_bytes;
    event->old_address = call->address;
    event->old_size_bytes = call->old_size_bytes;
    event->site = site;
    event->row = call->row;
    event->protection = call->protection;
    event->map_flags = call->map_flags;
    event->caller = caller;
    event->flags = call->flags & CALL_OF_ALLOCATOR ? MT_MAPPING_OF_ALLOCATOR : 0;
    if (call->flags & CALL_IS_SYSTEM_CALL) event->flags |= MT_MAPPING_BY_SYSTEM_CALL;
    event->reserved = 0;
    bpf_ringbuf_submit(event, wakeup_at(event->header.time_ns));
    return true;
}
