/* Every knob of the kernel side. The user side sets them before the load; the defaults load as they are. */
#pragma once

#include "memtrace/abi.h"

/* The table of allocators; a probe's cookie is the index. */
const volatile struct mt_row rows[MT_MAX_ROWS];
/* By enum mt_operation: the row of that system call, 0: it has none. */
const volatile mt_u32 system_call_rows[MT_MAX_OPERATIONS];
/* Frames recorded of one stack, 1 to MT_MAX_FRAMES. */
const volatile mt_u32 max_stack = MT_MAX_FRAMES;
/* 1: stacks are wanted no longer than that (--depth). */
const volatile mt_u32 folds_stacks = 0;
/* Blocks outside are not recorded (--min-size, --max-size; both inclusive). */
const volatile mt_u64 min_size_bytes = 0;
const volatile mt_u64 max_size_bytes = ~0ull;
/* 1: an event for every block that comes and goes (--trace). */
const volatile mt_u32 traces_blocks = 0;
/* Buckets of live_blocks minus 1; buckets are a power of two. */
const volatile mt_u32 live_bucket_mask = 127;
/* Call sites that fit; the entries of `sites` behind them are each owner's "stack unknown" site. */
const volatile mt_u32 max_sites = 1024;

/* Serials are below it. */
const volatile mt_u32 max_owners = MT_MAX_OWNERS;
/* Blocks and call sites that one owner can have, so that it leaves room for others. */
const volatile mt_u64 max_owner_blocks = ~0ull;
const volatile mt_u32 max_owner_sites = ~0u;
/* 1: blocks are sampled, or may come to be: the sums of `sites` are in the fractions of sampling_abi.h. */
const volatile mt_u32 samples = 0;
/* 1: a call whose return is not wanted meets no return probe. */
const volatile mt_u32 skips_returns = 0;

/* 1: links are filtered by process, so a vfork child, which shares its parent's memory, is not seen. */
const volatile mt_u32 misses_shared_children = 0;

/* Programs (program_names) and control groups (cgroups) whose processes become targets at their exec; how many. */
const volatile mt_u32 watched_names = 0;
mt_u32 watched_cgroups = 0;        /* grows when one appears that is waited for */
mt_u64 cgroup_ids[MT_MAX_CGROUPS]; /* as in the map `cgroups`; 0: that one does not exist yet */
/* enum mt_target_flags of targets that the kernel side makes. */
const volatile mt_u32 new_target_flags = 0;
/* 1: whoever allocates is a target, but for own_tgid, which is memtrace. */
const volatile mt_u32 traces_all = 0;
const volatile mt_u32 own_tgid = 0;
/* Always 0: see keep_own_stack. */
const volatile mt_u32 makes_tail_calls = 0;

/* 0: nothing is recorded, whatever the owners' flags say. Set when all links stand, cleared before the first one goes.
 */
mt_u32 is_armed = 0;
/* 1: every file that a target uses has a link for everybody, so that a followed child can be armed from its fork on. */
mt_u32 arms_children = 0;
/* By number of a file: 1: the link for everybody counts, and targets' own links, which stand as long, do not. */
mt_u8 shared_files[MT_MAX_PROBED_FILES] = {};
/* Mean distance between two sampled bytes; 0 and 1: every block is recorded. The user side may change it at any time.
 */
mt_u32 sampling_mean_bytes = 0;
/* Numbers given so far for the first time: owners and call sites count from 1. */
mt_u32 owners_given = 0;
mt_u32 sites_given = 0;
/* ... of them, to stacks that were sent raw. */
mt_u32 raw_sites_given = 0;
/* Forks whose child has an owner: none, and there is nothing to look for in the tables of what was inherited. */
mt_u32 forks_followed = 0;
/* Losses that have no owner: more than MT_MAX_OWNERS address spaces, no memory for an owner or a thread. */
mt_u64 owners_not_recorded = 0;
/* A tick of the kernel, counted from its start, and a time in it: of the last block that read the clock. */
mt_u64 last_tick = 0;
mt_u64 last_tick_ns = 0;
/* When the user side was last told of events that can wait. */
mt_u64 last_wakeup_ns = 0;
/* Blocks in live_overflow, so that a look-up knows when it need not ask there. */
long long overflow_blocks = 0;
