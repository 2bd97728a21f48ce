/* Every map: key, value, who deletes, what happens when it is full. Sizes marked (user) are set before the load. */
#pragma once

#include "calls.h"
#include "kernel_types.h"
#include "memtrace/abi.h"

#define WINDOW_BYTES 4096

/* State of one thread of a target. Below 8 KB: Linux 7.3 refuses larger task storage. */
struct thread {
    u64 mm; /* the address space that `owner` stands for */
    u32 owner;
    u32 frame_count;
    struct calls calls;
    u64 frames[MT_MAX_FRAMES + 1];
    u64 window_start;      /* user address of window[0] */
    u32 window_size_bytes; /* bytes of the window that can be read as words; 0: none */
    u32 walk_flags;        /* enum mt_site_flags */
    u64 frame_pointer;     /* the walk's state */
    u64 stack_pointer;
    u64 hash[2];
    u64 window[WINDOW_BYTES / 8];
};

/* tgid -> how its address spaces become owners. The user side adds and deletes. Full: the user side is told. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, MT_MAX_OWNERS);
    __type(key, u32);
    __type(value, struct mt_target);
} targets SEC(".maps");

/* Serial -> address space. Never deleted: an ended one keeps its numbers. Full: owners_not_recorded. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, MT_MAX_OWNERS);
    __type(key, u32);
    __type(value, struct mt_owner);
} owners SEC(".maps");

/* struct mm_struct * -> serial, as long as the address space lives: exec and exit delete. Full: owners_not_recorded. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, MT_MAX_OWNERS);
    __type(key, u64);
    __type(value, u32);
} owners_by_mm SEC(".maps");

/* Thread -> its calls in flight and scratch; the kernel frees it with the thread. No memory: owners_not_recorded. */
struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct thread);
} threads SEC(".maps");

/* Slot -> live block (user). A free deletes; the user side deletes those of ended owners. Full: live_overflow. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1024);
    __type(key, u32);
    __type(value, struct mt_block);
} live_blocks SEC(".maps");

/* MT_BLOCK_KEY -> live block that found no slot (user). A free deletes. Full: MT_COUNT_BLOCKS_LIVE_TABLE_FULL. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 128);
    __type(key, u64);
    __type(value, struct mt_block);
} live_overflow SEC(".maps");

/* Call site -> index in `sites` (user). Never deleted. Full: MT_COUNT_STACKS_SITES_FULL. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1024);
    __type(key, struct mt_site_key);
    __type(value, u32);
} sites_by_key SEC(".maps");

/* Index -> call site and its sums: 1 .. max_sites - 1, then max_sites + owner: "stack unknown" of an owner (user). */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1024 + MT_MAX_OWNERS);
    __type(key, u32);
    __type(value, struct mt_site);
} sites SEC(".maps");

/* The slow streams: new call sites, mappings, processes (user). Full: MT_COUNT_*_RING_FULL. */
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 20);
} ring SEC(".maps");
