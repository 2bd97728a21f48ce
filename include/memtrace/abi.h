/* The contract between the kernel side (bpf/) and the user side (userspace/kernel/): rows, map values, events and
 * counters. Plain C that compiles as BPF C, C11 and C++20; uses blocks_abi.h. Every number is explicit and
 * append-only; 0 is "none" or "invalid"; the size of every structure is asserted at the end of the file. */
#pragma once

#include "memtrace/blocks_abi.h"

enum mt_limits {
    MT_MAX_ROWS = 512,          /* rows of the table of allocators; a power of two */
    MT_MAX_OPERATIONS = 32,     /* numbers of enum mt_operation are below it; a power of two */
    MT_MAX_FRAMES = 127,        /* frames of one stack */
    MT_MAX_CALLS = 16,          /* allocator calls in flight on one thread */
    MT_MAX_OWNERS = 8192,       /* address spaces that one session can tell apart at once; owner 0 is "none" */
    MT_RAW_STACK_BYTES = 16384, /* of a stack that the user side has to walk */
    MT_UNWIND_SEGMENTS = 2,     /* executable segments of a file that can be told apart */
    MT_PC_CACHES = 64,          /* owners that have a cache of unwind rules */
    MT_PC_CACHE_ENTRIES = 4096,
    MT_NAME_BYTES = 64,         /* of a program's name, with its ending NUL */
    MT_MAX_NAMES = 64,          /* names of programs that are waited for */
    MT_MAX_CGROUPS = 64,        /* control groups whose processes are traced */
    MT_MAX_PROBED_FILES = 4096, /* files whose links for everybody one session can tell apart; a power of two */
};

/* Events that can wait are announced once in so long: whoever has read some looks again after it. */
#define MT_WAKEUP_INTERVAL_NS 10000000ull

/* What a function of the table of allocators does. */
enum mt_operation {
    MT_OP_NONE = 0,
    MT_OP_ALLOCATE = 1,     /* returns a new block of size [* count] bytes: malloc, calloc, memalign ... */
    MT_OP_FREE = 2,         /* gives back the block `old`: free, cfree */
    MT_OP_REALLOCATE = 3,   /* gives back `old` and returns a block of size [* count] bytes, or fails and keeps it */
    MT_OP_ALLOCATE_OUT = 4, /* stores the new block at *out and returns 0 when it succeeded: posix_memalign */
    MT_OP_DELEGATE = 5, /* allocates by calling another row, may throw, so it is never return-probed: operator new */
    MT_OP_MAP = 6,      /* mmap(address, size, protection, flags, fd, offset) */
    MT_OP_UNMAP = 7,    /* munmap(old, size) */
    MT_OP_REMAP = 8,    /* mremap(old, old_size = argument 2, size, flags, new_address) */
    MT_OP_THROW = 10,   /* what calls in flight that may throw do when they fail: std::get_new_handler */
    MT_OP_RESIZE = 9,   /* resizes `old` where it is, returns its new size, less than `size` when it failed: xallocx */
    /* Of Go's runtime, whose registers bpf/go.h knows; the rows name no arguments. */
    MT_OP_GO_ALLOCATE = 11,   /* mallocgc(size, type, ...): returns a new block */
    MT_OP_GO_SAMPLE = 12,     /* setprofilebucket(block, bucket): the runtime has chosen it for its heap profile */
    MT_OP_GO_SAMPLE_END = 13, /* freeSpecial(special, block, size) */
    MT_OP_BREAK = 14,         /* brk(old = the new end of the data segment), 0 when it succeeded */
    MT_OP_MOVE_BREAK = 15,    /* sbrk(size = by how much, signed), returns the old end */
    MT_OP_PROTECT = 16,       /* mprotect(old, size, protection) */
    MT_OP_ADVISE = 17,        /* madvise(old, size, advice) */
    MT_OP_ATTACH = 18,        /* shmat(id, address, flags), returns where the segment is */
    MT_OP_DETACH = 19,        /* shmdt(old) */
};

/* mt_row.flags. */
enum mt_row_flags {
    MT_ROW_RETURN_INSTRUCTIONS = 1, /* its return is seen at its own return instructions: it may throw, and an exception
                                       must not meet a return address that a return probe has replaced */
    MT_ROW_SIZE_OF_STRING = 4,      /* ALLOCATE: the block is the size of the string in it: mi_strdup */
    MT_ROW_FREES_WHEN_FAILED = 2,   /* REALLOCATE: gives back `old` also when it returns nothing: reallocf */
    MT_ROW_COLLECTED = 8, /* a garbage collector gives the blocks back; no call tells, the user side reads it */
};

/* A probe's cookie: a row's number or one of the first two of these; with MT_COOKIE_SHARED also the number of the file
 * from bit MT_COOKIE_FILE_SHIFT on. */
enum mt_cookie {
    MT_COOKIE_RETURN_INSTRUCTION = 1 << 16, /* the probe is at a return instruction of rows that have their flag */
    MT_COOKIE_UNSEEN_RETURN = 1 << 17, /* ... at a jump out of them, to where their return is seen otherwise or not */
    MT_COOKIE_SHARED = 1 << 18,        /* the probe's link is that for everybody on the file */
    MT_COOKIE_STACK_CHECK = 1 << 19,   /* the probe is on the jump of a Go function to where its stack grows */
    MT_COOKIE_FILE_SHIFT = 32,
};

/* How the kernel side reads one function of the table. Arguments count from 1; 0 is "has none". */
struct mt_row {
    mt_u8 operation; /* enum mt_operation */
    mt_u8 size_argument;
    mt_u8 count_argument; /* multiplies the size */
    mt_u8 old_argument;   /* the block that is given back */
    mt_u8 out_argument;   /* points to where the result is stored */
    mt_u8 flags;          /* enum mt_row_flags */
    mt_u8 reserved[2];
    mt_u32 constant_size_bytes; /* the size, of a function that has no argument for it */
    mt_u32 reserved_word;
};

/* Counters, kept per owner. The names of the contract's accuracy figures are sums of them (userspace/heap). */
enum mt_counter {
    MT_COUNT_BLOCKS_LIVE_TABLE_FULL = 0, /* a block not recorded: its slots and the overflow table were full */
    MT_COUNT_BLOCKS_CALLS_FULL = 1,      /* a block not recorded: more than MT_MAX_CALLS calls in flight on a thread */
    MT_COUNT_STACKS_SITES_FULL = 2,      /* a block recorded without its stack: the table of call sites was full */
    MT_COUNT_STACKS_RING_FULL = 3,       /* a block recorded without its stack: the ring buffer was full */
    MT_COUNT_EVENTS_RING_FULL = 4,       /* a process or trace event lost: the ring buffer was full */
    MT_COUNT_RETURNS_MISSED = 5,         /* an allocation whose return the kernel did not report */
    MT_COUNT_FREES_MISSED = 6,           /* a block was found alive where a new one begins */
    MT_COUNT_REALLOCS_UNRESOLVED = 7,    /* a realloc whose return never came */
    MT_COUNT_UNKNOWN_FREES = 8,          /* informs: a block freed that was not recorded (from before the attach) */
    MT_COUNT_CALLS_ABANDONED = 9,        /* informs: left by longjmp, exception or thread end */
    MT_COUNT_CALLS_SUPPRESSED = 10,      /* informs: an allocator's call to another allocator function */
    MT_COUNT_STACKS_TRUNCATED = 11,      /* informs: a stack with more than the configured frames */
    MT_COUNT_BLOCKS_FILTERED = 12,       /* informs: allocations outside --min-size and --max-size */
    MT_COUNT_CHILDREN_NOT_SEEN = 13,     /* informs: vfork children that share the memory and are not probed */
    MT_COUNT_INHERITED_LOST = 14,        /* an inherited block not followed: no room, or too many forks between */
    MT_COUNT_BLOCKS_QUOTA = 15,          /* a block not recorded: its process has as many as one may have */
    MT_COUNT_STACKS_QUOTA = 16,          /* a block recorded without its stack: ... call sites ... */
    MT_COUNT_TYPES_FULL = 17,            /* informs: an object without its type: the table of types was full */
    MT_COUNT_MAPPINGS_RING_FULL = 18,    /* a mapping event lost, and in no other counter: the ring buffer was full */
    MT_COUNTERS = 32,
};

/* Owner flags. */
enum mt_owner_flags {
    MT_OWNER_ARMED = 1,  /* its allocations are recorded */
    MT_OWNER_ENDED = 2,  /* exec or exit ended the address space */
    MT_OWNER_UNHELD = 4, /* ... and no child is left that can hold what was its: it can be released */
};

/* Value of the map `owners`: one address space, by its serial number (the key). Written by the kernel side, but for
 * `flags`, which the user side may clear. */
struct mt_owner {
    mt_u64 mm;            /* the kernel's struct mm_struct *, never dereferenced by the user side */
    mt_u32 tgid;          /* in the initial PID namespace */
    mt_u32 flags;         /* enum mt_owner_flags */
    mt_u64 first_seen_ns; /* CLOCK_MONOTONIC */
    mt_u64 ended_ns;      /* 0 while it lives */
    mt_u32 exit_code;     /* as wait(2) reports it; 0 when exec ended it */
    mt_u32
        code_generation;  /* the user side adds 1 when code was mapped over other code: what is cached of it is stale */
    mt_u32 fallback_site; /* the call site "stack unknown" of this owner, 0 until it is needed */
    mt_u32 parent_owner;  /* fork copied that one's memory; 0: exec made this one, or it was there before */
    mt_u64 counters[MT_COUNTERS];
    mt_u64 forked_ns;   /* when fork made it; CLOCK_MONOTONIC */
    mt_u32 fork_number; /* which fork of its parent made it; the first is 1 */
    mt_u32 forks;       /* that it made so far, of children that are followed */
    mt_u32 holders;     /* children that can hold what was its: they live, or have such children */
    mt_u32 sites;       /* call sites that it has */
    mt_u64 live_blocks; /* that it has in the tables */
    /* Of its collected heap: */
    mt_u64 collection_counter; /* address of the word in which collections are counted; 0: not known */
    mt_u64 collections;        /* that had been when a block was recorded last, plus 1; 0: none was, or not known */
    mt_u64 collected_ns; /* CLOCK_MONOTONIC, when the first block behind the last of them was recorded; 0: none was */
    mt_u32 type_source;  /* enum mt_type_source (runtimes_abi.h) */
    mt_u32 reserved_word;
    mt_u64 reserved[1];
};

/* Values of mt_target.armed. */
enum mt_target_state {
    MT_TARGET_NOT_ARMED = 0,
    MT_TARGET_ARMED = 1,       /* the first allocator call of a new address space makes it an owner */
    MT_TARGET_ARM_AT_EXEC = 2, /* ... from the next exec on: a command that memtrace starts */
    MT_TARGET_FORKED = 3,      /* fork made it: its owner exists, and is armed when its probes stand */
};

/* mt_target.flags. */
enum mt_target_flags {
    MT_TARGET_FOLLOWED = 1, /* what it forks is a target as well */
};

/* Key of the map `program_names`: last part of a path, cut to fit, the rest NUL. */
struct mt_program_name {
    char text[MT_NAME_BYTES];
};

/* Key of the map `targets` is a tgid; this is its value. */
struct mt_target {
    mt_u32 armed; /* enum mt_target_state */
    mt_u32 owner; /* serial of the current address space, 0 until it is seen */
    mt_u32 flags; /* enum mt_target_flags */
    mt_u32 reserved;
};

/* Identity of a call site within one session: same address space, same function, same stack. */
struct mt_site_key {
    mt_u64 stack_hash[2]; /* 128-bit hash of the frames' places: (file, offset), of code without a file its address */
    mt_u32 owner;
    mt_u32 row;
};

enum mt_site_flags {
    MT_SITE_STACK_TRUNCATED = 1,     /* the stack has more frames than were recorded */
    MT_SITE_STACK_UNKNOWN = 2,       /* the stack could not be recorded */
    MT_SITE_READY = 4,               /* the key is complete */
    MT_SITE_STACK_SENT_RAW = 8,      /* the walk met code without a table: the user side has to end it */
    MT_SITE_STACK_NO_CFI = 16,       /* ... code without CFI whose frame pointer leads nowhere */
    MT_SITE_STACK_UNREADABLE = 32,   /* ... stack memory that could not be read */
    MT_SITE_STACK_UNSUPPORTED = 64,  /* ... CFI that the tables cannot say */
    MT_SITE_STACK_NO_PROGRESS = 128, /* ... a frame that is not above the one before */
    MT_SITE_STACK_NOT_SENT = 256,    /* ... code without a table, and there was no room to send the stack raw */
};

/* Value of the map `sites`: sums of one call site. Index 0 is not used. live = allocated - freed. When the session
 * samples, bytes and blocks are what sampled blocks stand for, in the fractions of sampling_abi.h.
 * Read the freed figures before the allocated ones: then live is never negative. */
struct mt_site {
    struct mt_site_key key;
    mt_u32 flags; /* enum mt_site_flags */
    mt_u32 reserved;
    mt_u64 allocated_bytes;
    mt_u64 allocations;
    mt_u64 freed_bytes;
    mt_u64 frees;
};

/* Events of the ring buffer. */
enum mt_event_type {
    MT_EVENT_NONE = 0,
    MT_EVENT_SITE = 1,         /* struct mt_site_event: a new call site and its stack, once */
    MT_EVENT_MAP = 2,          /* struct mt_mapping_event (mapping_abi.h): mmap succeeded */
    MT_EVENT_UNMAP = 3,        /* ... munmap was called: the range is going */
    MT_EVENT_UNMAP_FAILED = 4, /* ... and the kernel refused: what UNMAP took is put back */
    MT_EVENT_REMAP = 5,        /* ... mremap was called: the old range is going */
    MT_EVENT_REMAP_DONE = 6,   /* ... and succeeded: address and size are the new ones */
    MT_EVENT_REMAP_FAILED = 7, /* ... or failed: what REMAP took is put back */
    MT_EVENT_ALLOC = 8,        /* struct mt_block_event, with --trace only */
    MT_EVENT_FREE = 9,         /* ... */
    MT_EVENT_OWNER = 10,       /* struct mt_process_event: an address space was seen for the first time */
    MT_EVENT_EXEC = 11,        /* ... exec ended one; owner is the old one, 0 if none was seen */
    MT_EVENT_FILE = 13,        /* struct mt_file_event: the walk met a file that has no unwind table */
    MT_EVENT_EXIT = 12,        /* ... a target's last thread ended */
    MT_EVENT_FORK = 15,  /* struct mt_process_event: a target has forked; header: the child's owner, 0 if it shares
                            the parent's memory, and tgid */
    MT_EVENT_MOVED = 16, /* struct mt_process_event: a process came into another control group */
    MT_EVENT_CGROUP_MADE = 17, /* struct mt_cgroup_event: a control group was made */
    MT_EVENT_CGROUP_GONE = 18, /* ... was removed */
    MT_EVENT_BORN = 19,        /* struct mt_process_event: a process was born in a watched control group, a target */
    MT_EVENT_PROTECT = 20,     /* struct mt_mapping_event: mprotect succeeded */
    MT_EVENT_DISCARD = 21,     /* ... madvise gave the pages of a range back to the kernel; the range stays */
    MT_EVENT_DETACH = 22,      /* ... shmdt was called: the segment at `address` is going; may become UNMAP_FAILED */
    MT_EVENT_RAW_STACK = 14, /* struct mt_raw_stack_event: a new call site of one stack that is not walked to its end */
};

struct mt_event {
    mt_u32 type; /* enum mt_event_type */
    mt_u32 owner;
    mt_u64 time_ns; /* CLOCK_MONOTONIC */
    mt_u32 tgid;
    mt_u32 tid;
};

struct mt_site_event {
    struct mt_event header;
    mt_u32 site;
    mt_u32 frame_count;
    mt_u64 frames[MT_MAX_FRAMES]; /* return addresses, the allocation's caller first; only frame_count are sent */
};

/* The site is that of one allocation: another one with the same stack has another site. */
struct mt_raw_stack_event {
    struct mt_event header;
    mt_u32 site;
    mt_u32 frame_count;
    mt_u64 pc; /* where to look up the rule of the last frame: its return address - 1, or where it was interrupted */
    mt_u64 stack_pointer; /* ... and its registers there */
    mt_u64 frame_pointer;
    mt_u32 is_interrupted; /* pc is no return address - 1 */
    mt_u32 stack_bytes;    /* that could be copied, from the start of stack_pointer's page up */
    mt_u64 frames[MT_MAX_FRAMES];
    mt_u8 stack[MT_RAW_STACK_BYTES];
};

struct mt_block_event {
    struct mt_event header;
    mt_u64 address;
    mt_u64 size_bytes;
    mt_u32 site;
    mt_u32 row; /* the function that was called */
};

struct mt_process_event {
    struct mt_event header;
    mt_u32 exit_code;    /* EXIT: as wait(2) reports it */
    mt_u32 parent_tgid;  /* FORK */
    mt_u32 parent_owner; /* FORK: 0 if the parent has not allocated yet */
    mt_u32 is_armed;     /* FORK: it is recorded from its birth on */
    char comm[16];       /* of the process; of a child that of its parent */
};

struct mt_cgroup_event {
    struct mt_event header;
    char path[512]; /* from the top of its hierarchy, ends with NUL */
};

/* Of the ring `fork_notices`, for who arms children beside the main loop: ahead of the MT_EVENT_FORK of the same child,
 * which tells the rest. */
struct mt_fork_notice {
    mt_u64 time_ns; /* as that event has it */
    mt_u32 tgid;
    mt_u32 parent_tgid;
    mt_u32 owner; /* 0 if it shares the parent's memory */
    mt_u32 reserved;
};

/* Key of the map `unwind_files`: a file as the kernel sees it. */
struct mt_file {
    mt_u64 device; /* dev_t of the kernel: major << 20 | minor */
    mt_u64 inode;
};

/* Value of mt_unwind_file.state. */
enum mt_unwind_state {
    MT_UNWIND_ASKED_FOR = 1, /* the user side was told and has not answered */
    MT_UNWIND_READY = 2,
    MT_UNWIND_NO_CFI = 3, /* the file has no usable CFI: its code is walked by frame pointer */
};

struct mt_unwind_segment {
    mt_u64 file_offset;
    mt_u64 size_bytes;
    mt_u64 vaddr;
};

/* Value of the map `unwind_files`: where the table of a file is (memtrace/unwind_abi.h says what is in it). */
struct mt_unwind_file {
    mt_u32 state;      /* enum mt_unwind_state */
    mt_u32 first_page; /* index in `unwind_pages` of the table's page index; its rows are numbered absolutely */
    mt_u32 page_count;
    mt_u32 first_rule; /* index in `unwind_rules` of the table's dictionary */
    mt_u64 first_page_vaddr;
    struct mt_unwind_segment segments[MT_UNWIND_SEGMENTS]; /* executable ones; size 0: none */
};

struct mt_file_event {
    struct mt_event header;
    struct mt_file file;
    mt_u64 address; /* of code in the file */
};

MT_ASSERT_SIZE(struct mt_row, 16);
MT_ASSERT_SIZE(struct mt_owner, 376);
MT_ASSERT_SIZE(struct mt_target, 16);
MT_ASSERT_SIZE(struct mt_site_key, 24);
MT_ASSERT_SIZE(struct mt_site, 64);
MT_ASSERT_SIZE(struct mt_event, 24);
MT_ASSERT_SIZE(struct mt_site_event, 32 + 8 * MT_MAX_FRAMES);
MT_ASSERT_SIZE(struct mt_raw_stack_event, 64 + 8 * MT_MAX_FRAMES + MT_RAW_STACK_BYTES);
MT_ASSERT_SIZE(struct mt_block_event, 48);
MT_ASSERT_SIZE(struct mt_process_event, 56);
MT_ASSERT_SIZE(struct mt_cgroup_event, 536);
MT_ASSERT_SIZE(struct mt_fork_notice, 24);
MT_ASSERT_SIZE(struct mt_file, 16);
MT_ASSERT_SIZE(struct mt_unwind_file, 72);
MT_ASSERT_SIZE(struct mt_file_event, 48);
