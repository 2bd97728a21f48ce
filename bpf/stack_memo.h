/* The call site of a stack that the thread was seen with before: a walk depends on the registers it starts from, on
 * some words of the stack and on the tables alone, so that where these are the same the stack is. */
#pragma once

#include "config.h"
#include "maps.h"
#include "stacks.h"
#include "targets.h"
#include "unwind.h"

/* Walks at most between two tries to remember a stack whose words change. */
#define MOST_REST 255

/* Where a walk begins: behind the call, in the caller. */
struct walk_start {
    u64 caller;
    u64 stack_pointer;
    u64 frame_pointer;
    u32 row;
    u32 reserved;
};

static __always_inline struct stack_memo* memo_for(const struct walk_start* start, u64 flags) {
    struct stack_memos* memos = bpf_task_storage_get(&stack_memos, bpf_get_current_task_btf(), 0, flags);
    if (!memos) return 0;
    u64 hash = (start->caller ^ start->stack_pointer) * 0x9e3779b97f4a7c15ull;
    return &memos->memos[hash >> 61 & (STACK_MEMOS - 1)];
}

static __always_inline bool begins_at(const struct stack_memo* memo, const struct thread* thread,
                                      const struct walk_start* start) {
    return memo->caller == start->caller && memo->stack_pointer == start->stack_pointer && memo->row == start->row &&
           memo->owner == thread->owner;
}

/* Does the stack have the words of the memo? */
__noinline int has_words(struct thread* thread, const struct stack_memo* memo) {
    if (!thread || !memo) return false;
    thread->window_size_bytes = 0;
    u32 size_bytes = ((memo->size_bytes - 1) & (WINDOW_BYTES - 1)) + 1;
    if (bpf_probe_read_user(thread->window, size_bytes, (const void*)memo->stack_pointer)) return false;
    for (u32 index = 0; index < MEMO_WORDS; index++) {
        if (index >= memo->word_count) break;
        if (thread->window[memo->offsets[index] & (WINDOW_BYTES / 8 - 1)] != memo->words[index]) return false;
    }
    return true;
}

/* Sums will be added to it: it is loaded while the stack is looked at. */
static __always_inline void expect_site(u32 index) {
    const volatile struct mt_site* site = bpf_map_lookup_elem(&sites, &index);
    if (site) (void)site->allocations;
}

/* The site of the memo, if the stack is the one that it is of; 0 if not. */
static __always_inline u32 recall_site(struct thread* thread, const struct mt_owner* owner, struct stack_memo* memo,
                                       const struct walk_start* start) {
    if (!memo->site || memo->code_generation != owner->code_generation) return 0;
    expect_site(memo->site);
    bool has_register = !memo->needs_frame_pointer || memo->frame_pointer == start->frame_pointer;
    if (has_register && has_words(thread, memo)) {
        if (memo->changes) memo->changes--;
        return memo->site;
    }
    u32 changes = 2 * memo->changes + 1;
    memo->changes = memo->rest = changes < MOST_REST ? changes : MOST_REST;
    memo->site = 0;
    return 0;
}

/* Remembers the stack that was just walked, MEMO_WORDS at most, as that of `site`. */
__noinline int remember_words(struct thread* thread, struct stack_memo* memo, u32 site) {
    if (!thread || !memo) return 0;
    u32 last = 0;
    for (u32 index = 0; index < MEMO_WORDS; index++) {
        if (index >= thread->noted_words) break;
        u32 offset = thread->noted_offsets[index];
        memo->offsets[index] = offset;
        last = offset > last ? offset : last;
    }
    thread->window_size_bytes = 0;
    u32 size_bytes = 8 * last + 8;
    if (bpf_probe_read_user(thread->window, ((size_bytes - 1) & (WINDOW_BYTES - 1)) + 1,
                            (const void*)memo->stack_pointer))
        return 0;
    for (u32 index = 0; index < MEMO_WORDS; index++) {
        if (index >= thread->noted_words) break;
        memo->words[index] = thread->window[memo->offsets[index] & (WINDOW_BYTES / 8 - 1)];
    }
    memo->size_bytes = size_bytes;
    memo->word_count = thread->noted_words;
    memo->needs_frame_pointer = thread->needs_frame_pointer;
    memo->code_generation = thread->code_generation;
    memo->site = site;
    return 0;
}

/* A stack is remembered when it is met for the second time: most are met once. */
static __always_inline void remember_stack(struct thread* thread, struct stack_memo* memo,
                                           const struct walk_start* start, u32 site) {
    if (!begins_at(memo, thread, start)) {
        memo->site = 0;
        memo->caller = start->caller;
        memo->stack_pointer = start->stack_pointer;
        memo->row = start->row;
        memo->owner = thread->owner;
        memo->changes = memo->rest = 0;
        return;
    }
    if (memo->rest) {
        memo->rest--;
        return;
    }
    struct mt_site* found = bpf_map_lookup_elem(&sites, &site);
    if (!found || (found->flags & MT_SITE_STACK_UNKNOWN)) return;
    memo->frame_pointer = start->frame_pointer;
    remember_words(thread, memo, site);
}

/* The call site of the stack that begins at `start`; 0 when it could not be recorded, which has been counted. */
static __always_inline u32 site_of_stack(struct thread* thread, struct mt_owner* owner,
                                         const struct walk_start* start) {
    struct stack_memo* memo = memo_for(start, 0);
    if (memo && begins_at(memo, thread, start)) {
        u32 site = recall_site(thread, owner, memo, start);
        if (site) return site;
    }
    walk_stack(thread, start->caller, start->stack_pointer, start->frame_pointer);
    u32 site = find_site(thread, owner, start->row);
    if (!site || thread->walk_flags || thread->noted_words > MEMO_WORDS) return site;
    if (!memo) memo = memo_for(start, BPF_LOCAL_STORAGE_GET_F_CREATE);
    if (memo) remember_stack(thread, memo, start, site);
    return site;
}
