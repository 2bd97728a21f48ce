/* Allocations that are not sampled. Where the kernel skips their return probe, such a call stays among the calls in
 * flight, passed by: it suppresses what it calls, and the next call finds out that it is over. */
#pragma once

#include "arguments.h"
#include "config.h"
#include "ledger.h"
#include "maps.h"
#include "nesting.h"

static __always_inline bool is_recorded_size(u64 size_bytes) {
    return size_bytes >= min_size_bytes && size_bytes <= max_size_bytes;
}

__noinline int draw_distance(struct thread* thread, u32 mean_bytes) {
    if (!thread) return 0;
    u64 random = (u64)bpf_get_prandom_u32() << 32 | bpf_get_prandom_u32();
    sampler_draw(&thread->sampler, random, mean_bytes);
    return 0;
}

/* Decides whether the block of a call will be recorded. */
static __always_inline void sample_call(struct thread* thread, struct mt_owner* owner, struct call* call) {
    u32 mean_bytes = sampling_mean_bytes;
    call->sampling_mean_bytes = mean_bytes;
    if (!is_recorded_size(call->size_bytes)) {
        call->flags |= CALL_NOT_SAMPLED;
        count(owner, MT_COUNT_BLOCKS_FILTERED);
        return;
    }
    if (mean_bytes <= 1) return;
    /* Nothing is left of a distance that was drawn with another mean: the exponential distribution has no memory. */
    if (thread->sampler.mean_bytes != mean_bytes) draw_distance(thread, mean_bytes);
    if (sampler_takes(&thread->sampler, call->size_bytes))
        draw_distance(thread, mean_bytes);
    else
        call->flags |= CALL_NOT_SAMPLED;
}

static __always_inline bool has_size_at_entry(const struct mt_row* row) {
    if (row->flags & MT_ROW_SIZE_OF_STRING) return false;
    return row->operation == MT_OP_ALLOCATE || row->operation == MT_OP_ALLOCATE_OUT ||
           row->operation == MT_OP_REALLOCATE || row->operation == MT_OP_RESIZE || row->operation == MT_OP_DELEGATE;
}

/* Samples the newest call, whose arguments are noted; true: it is passed by, and its return is not wanted. What a
 * delegate calls was decided with the delegate, and ends it. */
static __always_inline bool pass_by(struct thread* thread, struct mt_owner* owner, const struct pt_regs* ctx,
                                    const struct mt_row* row, bool is_return_probed) {
    u32 top = thread->calls.depth - 1;
    if (top >= MT_MAX_CALLS || !has_size_at_entry(row)) return false;
    struct call* call = &thread->calls.stack[top & (MT_MAX_CALLS - 1)];
    struct call* delegate = &thread->calls.stack[(top - 1) & (MT_MAX_CALLS - 1)];
    bool is_delegated = top > 0 && (call->flags & CALL_DELEGATED);
    if (is_delegated)
        call->flags |= delegate->flags & CALL_NOT_SAMPLED;
    else
        sample_call(thread, owner, call);
    if (!(call->flags & CALL_NOT_SAMPLED) || (call->flags & CALL_HOLDS_BLOCK) || !is_return_probed || !skips_returns)
        return false;
    if (is_delegated && !(delegate->flags & CALL_HAS_NO_RETURN)) return false;
    note_return_address(call, ctx, CALL_RETURN_MISSED);
    if (is_delegated) {
        *delegate = *call;
        delegate->flags &= ~CALL_DELEGATED;
        thread->calls.depth = top;
    }
    return true;
}

/* Does the call instruction before `return_address` always call the same function: rel32, or by a word of the file? */
static __always_inline bool is_fixed_call(u64 return_address) {
    u8 code[8] = {};
    if (bpf_probe_read_user(code, 6, (const void*)(return_address - 6))) return true;
    return code[1] == 0xe8 || (code[0] == 0xff && code[1] == 0x15);
}

/* Is `passed`, the newest call, still in flight when another one is made at `sp`? What stands at its place may be left
 * of a call that is over, and the allocator's library may call it from other functions, too: the stack decides. */
static __always_inline bool is_in_flight(struct thread* thread, const struct call* passed, u64 sp) {
    u64 slot, return_address;
    if (!read_word(sp, &return_address)) return false;
    /* A tail call: by a pointer two functions may be called from one place. */
    if (sp == passed->sp) return return_address == passed->return_address && is_fixed_call(return_address);
    if (passed->sp - sp > NESTING_REACH_BYTES) return false;
    if (!read_word(passed->sp, &slot) || slot != passed->return_address) return false;
    bool is_of_file = is_in_file_of(passed, return_address);
    if (!is_of_file && passed->sp - sp < SIGNAL_FRAME_MIN_BYTES) return false;
    u32 result = returns_through(thread, return_address, sp + 8, thread->entry_frame_pointer, passed->sp);
    if (result != DESCENT_IS_UNDECIDED) return result == DESCENT_ARRIVES;
    /* A handler, if the code that it interrupted is the allocator's. */
    return is_of_file || (thread->is_interrupted && is_in_file_of(passed, thread->pc));
}

/* Forgets the newest call, which was passed by, unless it is still in flight. */
__noinline int settle_passed_call(struct thread* thread, u64 sp) {
    if (!thread) return 0;
    u32 top = thread->calls.depth - 1;
    if (top >= MT_MAX_CALLS) return 0;
    if (!is_in_flight(thread, &thread->calls.stack[top & (MT_MAX_CALLS - 1)], sp)) thread->calls.depth = top;
    return 0;
}

/* A call comes at `sp`, and the newest one may have been passed by. Mostly that is over, and its place tells. */
static __always_inline void look_at_passed_call(struct thread* thread, u64 sp, u64 function, bool is_free) {
    u32 top = thread->calls.depth - 1;
    if (top >= MT_MAX_CALLS) return;
    const struct call* call = &thread->calls.stack[top & (MT_MAX_CALLS - 1)];
    if (!call_is_passed_by(call)) return;
    /* Another function at the same place may be a tail call; of free it is none. */
    if (sp > call->sp || (sp == call->sp && (is_free || function == call->function)))
        thread->calls.depth = top;
    else
        settle_passed_call(thread, sp);
}
