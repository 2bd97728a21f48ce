/* Blocks of Go's heap. No return probe may stand on Go code: the runtime walks its stacks and ends the program when it
 * meets the kernel's trampoline. Go's calling convention (register ABI, Go 1.17 on): arguments in ax, bx, cx, the
 * goroutine in r14. */
#pragma once

#include "arguments.h"
#include "config.h"
#include "ledger.h"
#include "maps.h"
#include "runtimes.h"
#include "sampled_calls.h"
#include "stacks.h"
#include "targets.h"

/* CF and ZF: what `jbe` looks at. */
#define BELOW_OR_EQUAL_FLAGS 0x41

/* runtime/mprof.go, struct bucket: the sums of one call stack and size; the stack follows. */
struct go_bucket {
    u64 next;
    u64 all_next;
    u64 type;
    u64 hash;
    u64 size_bytes;
    u64 frame_count;
};

/* A probe on the `jbe` of a function's stack check is hit again when the function has come back from growing its stack:
 * only the hit that does not jump is the call. */
static __always_inline bool goes_to_grow_stack(const struct pt_regs* ctx, u64 cookie) {
    return (cookie & MT_COOKIE_STACK_CHECK) && (ctx->flags & BELOW_OR_EQUAL_FLAGS);
}

/* The runtime has chosen an object for its heap profile. Its stack is in the bucket, which is one for all objects with
 * this stack and size: the bucket's address names both. */
__noinline int record_go_sample(struct thread* thread, struct mt_owner* owner, u32 row, u64 address, u64 bucket) {
    struct go_bucket head;
    if (!thread || !owner) return 0;
    if (bpf_probe_read_user(&head, sizeof head, (const void*)bucket)) return 0;
    if (!is_recorded_size(head.size_bytes)) {
        count(owner, MT_COUNT_BLOCKS_FILTERED);
        return 0;
    }
    u32 frame_count = head.frame_count < MT_MAX_FRAMES ? head.frame_count : MT_MAX_FRAMES;
    thread->walk_flags = 0;
    if (frame_count > max_stack) {
        frame_count = max_stack & MT_MAX_FRAMES;
        thread->walk_flags = folds_stacks ? 0 : MT_SITE_STACK_TRUNCATED;
    }
    thread->frame_count = frame_count;
    if (bpf_probe_read_user(thread->frames, frame_count * 8, (const void*)(bucket + sizeof head)))
        thread->walk_flags |= MT_SITE_STACK_UNREADABLE;
    thread->hash[0] = bucket;
    thread->hash[1] = head.size_bytes;
    struct call call = {.row = row, .size_bytes = head.size_bytes, .sampling_mean_bytes = 1};
    u32 site = find_site(thread, owner, row);
    record_block(owner, thread->owner, address, &call, site);
    return 0;
}

/* A special record of an object goes with the object. Finalizers have such records too, and so have samples from before
 * the attach, which the runtime's own sums know. */
__noinline int end_go_sample(struct thread* thread, struct mt_owner* owner, u32 row, u64 address) {
    struct held_block held = {};
    if (!thread || !owner) return 0;
    u64 key = MT_BLOCK_KEY(thread->owner, address);
    if (owner->holders) leave_ghost(owner, key);
    if (take_block(key, &held)) record_free(owner, thread->owner, address, &held, row);
    return 0;
}

/* A call may return on another thread than it was made on, and on a stack that was moved: it is known by its goroutine.
 * What the allocator calls of itself is inside. */
__noinline int enter_go_allocation(struct thread* thread, struct mt_owner* owner, struct go_call* call, u64 goroutine) {
    if (!thread || !owner || !call) return 0;
    struct go_call_key key = {.goroutine = goroutine, .owner = thread->owner};
    struct go_call* known = bpf_map_lookup_elem(&go_calls, &key);
    if (known && known->owner_seen_ns == owner->first_seen_ns) {
        known->inner_calls++;
        count(owner, MT_COUNT_CALLS_SUPPRESSED);
        return 0;
    }
    call->owner_seen_ns = owner->first_seen_ns;
    /* Linux 6.1 takes no value from there: "R3 type=mem expected=fp, pkt, pkt_meta, map_key, map_value". */
    struct go_call value = *call;
    if (bpf_map_update_elem(&go_calls, &key, &value, BPF_ANY)) count(owner, MT_COUNT_BLOCKS_CALLS_FULL);
    return 0;
}

/* The call of `goroutine` that returns, into `call`; false if there is none, or it is an inner one. */
__noinline int take_go_call(struct thread* thread, struct mt_owner* owner, struct go_call* call, u64 goroutine) {
    if (!thread || !owner || !call) return false;
    struct go_call_key key = {.goroutine = goroutine, .owner = thread->owner};
    struct go_call* known = bpf_map_lookup_elem(&go_calls, &key);
    if (!known || known->owner_seen_ns != owner->first_seen_ns) return false;
    if (known->inner_calls) {
        known->inner_calls--;
        return false;
    }
    *call = *known;
    bpf_map_delete_elem(&go_calls, &key);
    return true;
}

/* A function of Go's runtime was entered. */
static __always_inline int enter_go_function(struct pt_regs* ctx) {
    struct mt_owner* owner;
    u64 cookie = bpf_get_attach_cookie(ctx);
    if (goes_to_grow_stack(ctx, cookie)) return 0;
    struct thread* thread = traced_thread(&owner);
    if (!thread || is_counted_elsewhere(thread, cookie, instruction_pointer(ctx))) return 0;
    u32 row = cookie & (MT_MAX_ROWS - 1);
    u32 operation = rows[row].operation;
    if (operation == MT_OP_GO_SAMPLE) return record_go_sample(thread, owner, row, ctx->ax, ctx->bx);
    if (operation == MT_OP_GO_SAMPLE_END) return end_go_sample(thread, owner, row, ctx->bx);
    struct go_call call = {.size_bytes = ctx->ax, .type = ctx->bx, .row = row};
    return enter_go_allocation(thread, owner, &call, ctx->r14);
}

/* A return instruction of a function of Go's runtime that allocates: its caller's frame is as it was. */
static __always_inline int leave_go_function(struct pt_regs* ctx) {
    struct mt_owner* owner;
    struct go_call go_call;
    u64 return_address;
    struct thread* thread = traced_thread(&owner);
    u64 cookie = bpf_get_attach_cookie(ctx);
    if (!thread || is_counted_elsewhere(thread, cookie, instruction_pointer(ctx))) return 0;
    if (!take_go_call(thread, owner, &go_call, ctx->r14)) return 0;
    /* Objects of no bytes are all one variable of the runtime. */
    if (!ctx->ax || !go_call.size_bytes) return 0;
    if (!is_recorded_size(go_call.size_bytes)) {
        count(owner, MT_COUNT_BLOCKS_FILTERED);
        return 0;
    }
    if (!read_word(stack_pointer(ctx), &return_address)) return 0;
    walk_stack(thread, return_address, stack_pointer(ctx) + 8, frame_pointer(ctx));
    /* A call site has one type. */
    thread->hash[1] ^= go_call.type * 0x9e3779b97f4a7c15ull;
    struct call call = {.row = go_call.row, .size_bytes = go_call.size_bytes, .sampling_mean_bytes = 1};
    u32 site = find_site(thread, owner, go_call.row);
    record_block(owner, thread->owner, ctx->ax, &call, site);
    if (!samples && site) count_typed(owner, site, (u32)go_call.type, go_call.size_bytes);
    return 0;
}
