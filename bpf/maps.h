/* Every map: key, value, who deletes, what happens when it is full. Sizes marked (user) are set before the load. */
#pragma once

#include "calls.h"
#include "kernel_types.h"
#include "memtrace/abi.h"
#include "memtrace/runtimes_abi.h"
#include "memtrace/unwind_abi.h"
#include "sampling.h"

#define WINDOW_BYTES 4096

/* A mapped piece of code of one file, as the walk needs it. */
struct code_mapping {
    u64 start;              /* user address */
    u64 size_bytes;         /* 0: this entry is free */
    u64 vaddr_minus_start;  /* address in the file = user address + this, modulo 2^64 */
    u64 module;             /* hash of the file's numbers; 0: no file */
    u64 offset_minus_start; /* offset in the file = user address + this; without a file the address itself */
    u64 first_page_vaddr;
    u32 first_page;
    u32 page_count;
    u32 first_rule;
    u32 state; /* enum mt_unwind_state */
    u32 has_every_address;
    u32 reserved;
};

/* One that is looked for in the kernel's list. */
struct mapping_search {
    struct code_mapping mapping;
    struct mt_file file;
    u64 file_offset; /* of mapping.start */
};

#define CODE_MAPPINGS 4
/* Of a thread whose mappings are those of another owner. */
#define CODE_GENERATION_OF_NONE 0xffffffffu

/* What is known of an address, in two words that all cpus share: address << 16 | rule, which cannot tear, and the place
 * in its file, which says by its low 16 bits whether it is that of the same address. Side by side: one cache line. */
struct known_pc {
    u64 rule;
    u64 place;
};
struct pc_cache {
    struct known_pc entries[MT_PC_CACHE_ENTRIES];
};

/* A walk that depends on more words, or on anything else, is not remembered. */
#define MEMO_WORDS 64
#define NOT_NOTED 0xffffu
/* thread->frame_pointer_at where it is no address: of the walk's start, or a constant. */
#define FRAME_POINTER_OF_START 0
#define FRAME_POINTER_IS_CONSTANT 1

/* State of one thread of a target. Below 8 KB: Linux 7.3 refuses larger task storage. */
struct thread {
    u64 mm; /* the address space that `owner` stands for */
    u32 owner;
    u32 frame_count;
    struct calls calls;
    struct call system_call; /* that changes mappings, from its entry to its exit; row 0: none that was seen */
    u64 last_freed_address;  /* by the last free that was the program's, and where its call stood */
    u64 last_freed_sp;
    u64 shared_function; /* address of the probe whose hit the link for everybody counted last */
    struct sampler sampler;
    u64 entry_frame_pointer; /* of the caller, at the entry that is looked at; when the session samples */
    u64 untyped_address;     /* the last object whose type is not known yet; 0: none */
    u64 untyped_size_bytes;
    u32 untyped_site;
    u32 reserved_site;
    u64 frames[MT_MAX_FRAMES + 1];
    u64 window_start;      /* user address of window[0] */
    u32 window_size_bytes; /* bytes of the window that can be read as words; 0: none */
    u32 walk_flags;        /* enum mt_site_flags */
    u64 pc;                /* the walk's state: where to look up the rule, and the registers there */
    u64 stack_pointer;
    u64 frame_pointer;
    u64 trampoline;     /* of return probes; 0: none */
    u32 is_interrupted; /* 1: a signal arrived at pc, which may be any instruction; 0: pc is in a call */
    u32 reserved;
    u32 code_generation; /* of the owner, when code_mappings was filled; or CODE_GENERATION_OF_NONE */
    u32 next_code_mapping;
    struct code_mapping code_mappings[CODE_MAPPINGS];
    struct mapping_search search;  /* here, since all functions of a program share 512 bytes of stack */
    u64 place;                     /* of pc: hash of file and offset, 48 bits */
    u64 hash[2];                   /* of the places of all frames */
    u64 walk_start;                /* stack pointer where the walk began */
    u64 frame_pointer_at;          /* stack word that frame_pointer was read from; or FRAME_POINTER_* */
    u32 needs_frame_pointer;       /* 1: the walk depends on the frame pointer that it began with */
    u32 noted_words;               /* on which the walk depends; or NOT_NOTED */
    u16 noted_offsets[MEMO_WORDS]; /* of them, in words above walk_start */
    u64 window[WINDOW_BYTES / 8];
};

/* tgid -> how its address spaces become owners. Both sides add; exit deletes, and the user side what it does not want.
 * Full: the user side is told, and owners_not_recorded. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, MT_MAX_OWNERS);
    __type(key, u32);
    __type(value, struct mt_target);
} targets SEC(".maps");

/* Names of programs whose processes become targets at their exec. Written by the user side before the programs run;
 * never deleted. Full: the user side is told. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, MT_MAX_NAMES);
    __type(key, struct mt_program_name);
    __type(value, u32);
} program_names SEC(".maps");

/* Index below watched_cgroups -> control group whose processes are targets. As program_names. */
struct {
    __uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
    __uint(max_entries, MT_MAX_CGROUPS);
    __type(key, u32);
    __type(value, u32);
} cgroups SEC(".maps");

/* Serial -> address space. An ended one keeps its numbers until the user side has taken them. Full:
 * owners_not_recorded. */
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

/* A stack that a thread was seen with, and its call site; see stack_memo.h. */
struct stack_memo {
    u64 caller; /* where the walk began, and the registers there */
    u64 stack_pointer;
    u64 frame_pointer;
    u32 owner;
    u32 row;
    u32 code_generation; /* of the owner, then */
    u32 site;            /* 0: the stack has only been met */
    u32 word_count;
    u32 size_bytes; /* of the stack, up to the last of the words */
    u32 needs_frame_pointer;
    u16 changes;             /* how often the words were others, as a measure of what is not worth while */
    u16 rest;                /* walks until it is tried again */
    u16 offsets[MEMO_WORDS]; /* of the words, in words above stack_pointer; and the words */
    u64 words[MEMO_WORDS];
};

#define STACK_MEMOS 8
struct stack_memos {
    struct stack_memo memos[STACK_MEMOS];
};

/* Thread -> stacks that it was seen with; the kernel frees it with the thread. No memory: its stacks are walked. */
struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct stack_memos);
} stack_memos SEC(".maps");

/* Serials and indices of call sites that were given back by the user side, the first to be given again first. */
struct {
    __uint(type, BPF_MAP_TYPE_QUEUE);
    __uint(max_entries, MT_MAX_OWNERS);
    __type(value, u32);
} free_owners SEC(".maps");

/* ... (user) */
struct {
    __uint(type, BPF_MAP_TYPE_QUEUE);
    __uint(max_entries, 1024);
    __type(value, u32);
} free_sites SEC(".maps");

/* What a parent gave back and children still hold (user). The user side deletes. Full: MT_COUNT_INHERITED_LOST. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 128);
    __type(key, struct mt_ghost_key);
    __type(value, struct mt_block);
} ghosts SEC(".maps");

/* MT_BLOCK_KEY of a child -> it gave back what its parent had there (user). The user side deletes. Full:
 * MT_COUNT_INHERITED_LOST. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 128);
    __type(key, u64);
    __type(value, struct mt_inherited_free);
} inherited_frees SEC(".maps");

/* Bucket -> its live blocks (user). A free deletes; the user side deletes those of ended owners. Full: live_overflow.
 */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 128);
    __type(key, u32);
    __type(value, struct mt_bucket);
} live_blocks SEC(".maps");

/* MT_BLOCK_KEY -> live block that found no slot (user). A free deletes. Full: MT_COUNT_BLOCKS_LIVE_TABLE_FULL. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 128);
    __type(key, u64);
    __type(value, struct mt_block);
} live_overflow SEC(".maps");

/* Call site -> index in `sites` (user). The user side deletes those of ended owners. Full: MT_COUNT_STACKS_SITES_FULL.
 */
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

/* tgid -> its collected heap. The user side adds and deletes, exec deletes. Full: its owners have no collector. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, MT_MAX_OWNERS);
    __type(key, u32);
    __type(value, struct mt_collector);
} collectors SEC(".maps");

/* Call site, type, size -> objects allocated (user). The user side deletes with the site. Full: MT_COUNT_TYPES_FULL. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 1024);
    __type(key, struct mt_typed_site_key);
    __type(value, u64);
} typed_sites SEC(".maps");

/* An allocation of a goroutine that has not returned. */
struct go_call_key {
    u64 goroutine;
    u32 owner;
    u32 reserved;
};

struct go_call {
    u64 owner_seen_ns; /* mt_owner.first_seen_ns: a killed program leaves calls behind, and its number is given again */
    u64 size_bytes;
    u64 type;
    u32 row;
    u32 inner_calls;
};

/* Goroutines that are in their allocator. The return deletes. Full: MT_COUNT_BLOCKS_CALLS_FULL. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 16384);
    __type(key, struct go_call_key);
    __type(value, struct go_call);
} go_calls SEC(".maps");

/* The slow streams: new call sites, mappings, processes (user). Full: MT_COUNT_*_RING_FULL. */
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 20);
} ring SEC(".maps");

/* Children that wait for their probes; full: the main loop arms them when it comes to their event. */
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 16);
} fork_notices SEC(".maps");

/* File -> its unwind table. The user side adds; the kernel side only asks. Full: its code is walked by frame pointer.
 */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 4096);
    __type(key, struct mt_file);
    __type(value, struct mt_unwind_file);
} unwind_files SEC(".maps");

/* Rows of all tables, one behind the other, two in an element, since elements are 8 bytes apart at least (user).
 * Written by the user side only. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, u64);
} unwind_rows SEC(".maps");

/* Page indexes of all tables, two entries in an element; they are numbers of rows (user). Written by the user side
 * only. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, u64);
} unwind_pages SEC(".maps");

/* Dictionaries of all tables (user). Written by the user side only. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, struct mt_unwind_rule);
} unwind_rules SEC(".maps");

/* Nothing: there is no program to call. */
struct {
    __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, u32);
} no_programs SEC(".maps");

/* ... for programs of sessions: all that could call through one array are attached in one way (bpf_prog_map_compatible,
 * kernel/bpf/core.c). */
struct {
    __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, u32);
} no_session_programs SEC(".maps");

/* Owner -> rules of the addresses that it was last seen at; see struct pc_cache. The user side clears. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, MT_PC_CACHES);
    __type(key, u32);
    __type(value, struct pc_cache);
} pc_caches SEC(".maps");
