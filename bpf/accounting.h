/* What happens when a function of the table is entered and when it returns. The ordering law: a free is recorded before
 * the block can be handed out again (entry), an allocation after it exists (return). */
#pragma once

#include "arguments.h"
#include "inheritance.h"
#include "ledger.h"
#include "mappings.h"
#include "nesting.h"
#include "sampled_calls.h"
#include "stacks.h"
#include "targets.h"

/* Linux drops a return probe when more than this many are pending on a thread (include/linux/uprobes.h). */
#define MAX_URETPROBE_DEPTH 64

enum wanted_return {
    RETURN_IS_WANTED = 0, /* the value that a session program returns for it */
    RETURN_IS_NOT_WANTED = 1,
};

static __always_inline struct mt_row row_at(u32 row) {
    return rows[row & (MT_MAX_ROWS - 1)];
}

static __always_inline u64 requested_bytes(const struct pt_regs* ctx, const struct mt_row* row) {
    u64 size_bytes = row->size_argument ? read_argument(ctx, row->size_argument) : row->constant_size_bytes;
    if (!row->count_argument) return size_bytes;
    u64 count_of_them = read_argument(ctx, row->count_argument);
    /* A product that overflows is a call that fails; as 0 it would be a realloc that frees. */
    if (count_of_them == 0) return 0;
    u64 most_bytes = ~0ull / count_of_them;
    /* Kept apart from the comparison, of which clang makes an overflow check that BPF does not have: "A call to
     * built-in function '__multi3' is not supported". */
    asm volatile("" : "+r"(most_bytes));
    return size_bytes > most_bytes ? ~0ull : size_bytes * count_of_them;
}

/* A call inside of the newest one in flight: what it calls in turn is of that one too. */
static __always_inline void suppress_call(struct thread* thread, struct mt_owner* owner, u64 function) {
    u32 top = thread->calls.depth - 1;
    if (top < MT_MAX_CALLS) thread->calls.stack[top & (MT_MAX_CALLS - 1)].inner_function = function;
    count(owner, MT_COUNT_CALLS_SUPPRESSED);
}

/* In place: a compound literal would be made on the stack, which is small. */
static __always_inline void begin_call(struct call* call, u64 sp, u32 row, u64 function) {
    __builtin_memset(call, 0, sizeof *call);
    call->sp = sp;
    call->row = row;
    call->function = function;
}

/* A free whose return is seen: what it calls is its own. Where there is no room, that counts as unknown frees. */
static __always_inline void enclose_free(struct thread* thread, const struct pt_regs* ctx, u64 sp, u32 row) {
    struct call* call = calls_push(&thread->calls);
    if (!call) return;
    begin_call(call, sp, row, instruction_pointer(ctx));
    note_return_address(call, ctx, CALL_RETURNS_BY_INSTRUCTION);
}

/* The block at `address` is freed by a call that is the program's own. */
__noinline int give_back(struct thread* thread, struct mt_owner* owner, u64 address, u64 sp, u32 row) {
    if (!thread || !owner) return 0;
    /* A free that is only entered cannot be in flight; one that hands the block on to another free is told by it. */
    bool is_handed_on = address == thread->last_freed_address && sp <= thread->last_freed_sp;
    thread->last_freed_address = address;
    thread->last_freed_sp = sp;
    struct held_block held = {};
    u64 key = MT_BLOCK_KEY(thread->owner, address);
    if (owner->holders) leave_ghost(owner, key);
    if (take_block(key, &held))
        record_free(owner, thread->owner, address, &held, row);
    else if (is_handed_on && !samples)
        count(owner, MT_COUNT_CALLS_SUPPRESSED);
    else if (!is_handed_on) /* under sampling the same address may come twice: what was there was not sampled */
        record_unknown_free(owner, thread->owner, address);
    return 0;
}

static __always_inline void enter_free(struct thread* thread, struct mt_owner* owner, const struct pt_regs* ctx,
                                       const struct mt_row* row_of_call, u64 sp, u32 row) {
    u64 address = read_argument(ctx, row_of_call->old_argument);
    if (address == 0) return;
    expect_block(MT_BLOCK_KEY(thread->owner, address));
    u64 function = instruction_pointer(ctx);
    if (samples) look_at_passed_call(thread, sp, function, true);
    if (thread->calls.depth && settle_calls(thread, owner, sp, row, function) != CALL_IS_OUTERMOST) {
        suppress_call(thread, owner, function);
        return;
    }
    if (row_of_call->flags & MT_ROW_RETURN_INSTRUCTIONS) enclose_free(thread, ctx, sp, row);
    give_back(thread, owner, address, sp, row);
}

__noinline int take_old_block(struct thread* thread, struct mt_owner* owner, struct call* call) {
    if (!thread || !owner || !call || call->address == 0) return 0;
    struct held_block held = {};
    u64 key = MT_BLOCK_KEY(thread->owner, call->address);
    /* If it is put back, its ghost says the same as the block. */
    if (owner->holders) leave_ghost(owner, key);
    if (take_block(key, &held)) {
        call->held = held;
        call->flags |= CALL_HOLDS_BLOCK;
    } else {
        call->flags |= CALL_OLD_UNKNOWN;
    }
    return 0;
}

/* Remembers the arguments of a call, and takes out what it gives back. False: its return says nothing. */
static __always_inline bool note_arguments(struct thread* thread, struct mt_owner* owner, struct call* call,
                                           const struct pt_regs* ctx, const struct mt_row* row) {
    call->size_bytes = requested_bytes(ctx, row);
    if (row->operation == MT_OP_ALLOCATE_OUT) call->address = read_argument(ctx, row->out_argument);
    if (row->old_argument) call->address = read_argument(ctx, row->old_argument);
    if (row->operation == MT_OP_REALLOCATE || row->operation == MT_OP_RESIZE) take_old_block(thread, owner, call);
    return !changes_mappings(row->operation) || note_mapping_call(thread, owner, call, ctx, row->operation);
}

/* Would the kernel drop the return of this call, or, because the thread has changed to a stack above one on which a
 * call waits for its return, drop that other call's and then kill the thread ("handle uretprobe, sending SIGILL")? */
static __always_inline bool return_is_at_risk(const struct thread* thread, u64 sp) {
    struct task_struct* task = bpf_get_current_task_btf();
    if (task->utask && task->utask->depth >= MAX_URETPROBE_DEPTH) return true;
    u32 top = thread->calls.depth - 1;
    if (top >= MT_MAX_CALLS) return false;
    const struct call* waiting = &thread->calls.stack[top & (MT_MAX_CALLS - 1)];
    return waiting->sp < sp && !(waiting->flags & CALL_KEEPS_RETURN_ADDRESS);
}

/* Does a call of `operation` do what the delegate at `index` was called for? */
static __always_inline bool serves(const struct thread* thread, u32 index, u32 operation) {
    if (operation == MT_OP_ALLOCATE || operation == MT_OP_ALLOCATE_OUT) return true;
    return operation == MT_OP_REALLOCATE &&
           row_at(thread->calls.stack[index & (MT_MAX_CALLS - 1)].row).operation == MT_OP_REALLOCATE;
}

/* Is a call of `operation` that was suppressed told all the same? What an allocator maps, inside a call of its own, is
 * its memory and nobody's leak: it is told without a stack, so that it is known what the allocator has. What a mapping
 * function calls inside is that function's, and the data segment is known by its name. */
static __always_inline bool maps_for_allocator(const struct thread* thread, u32 operation) {
    u32 top = thread->calls.depth - 1;
    if (operation < MT_OP_MAP || operation > MT_OP_REMAP || top >= MT_MAX_CALLS - 1) return false;
    return !changes_mappings(row_at(thread->calls.stack[top & (MT_MAX_CALLS - 1)].row).operation);
}

/* A function of the table was entered. Returns enum wanted_return. */
static __always_inline int enter_function(struct pt_regs* ctx) {
    struct mt_owner* owner;
    struct thread* thread = traced_thread(&owner);
    if (!thread) return RETURN_IS_NOT_WANTED;
    u64 cookie = bpf_get_attach_cookie(ctx);
    u64 function = instruction_pointer(ctx);
    /* The own link may be gone when the call returns: then this one reports it. */
    if (is_counted_elsewhere(thread, cookie, function))
        return cookie & MT_COOKIE_SHARED ? RETURN_IS_WANTED : RETURN_IS_NOT_WANTED;
    u32 row_number = cookie & (MT_MAX_ROWS - 1);
    struct mt_row row = row_at(row_number);
    u64 sp = stack_pointer(ctx);
    if (samples) thread->entry_frame_pointer = frame_pointer(ctx);
    if (thread->untyped_address) count_type(thread, owner);
    if (row.operation == MT_OP_THROW) {
        note_failure(thread);
        return RETURN_IS_NOT_WANTED;
    }
    if (row.operation == MT_OP_FREE) {
        enter_free(thread, owner, ctx, &row, sp, row_number);
        return RETURN_IS_NOT_WANTED;
    }
    if (samples) look_at_passed_call(thread, sp, function, false);
    u32 relation = thread->calls.depth ? settle_calls(thread, owner, sp, row_number, function) : CALL_IS_OUTERMOST;
    u32 top = thread->calls.depth - 1;
    if (relation == CALL_IS_FOR_DELEGATE && row.operation == MT_OP_DELEGATE) {
        thread->calls.stack[top & (MT_MAX_CALLS - 1)].function = function;
        return RETURN_IS_NOT_WANTED;
    }
    u32 flags = relation == CALL_IS_FOR_DELEGATE ? CALL_DELEGATED : 0;
    if (relation == CALL_IS_INNER || (relation == CALL_IS_FOR_DELEGATE && !serves(thread, top, row.operation))) {
        suppress_call(thread, owner, function);
        if (!maps_for_allocator(thread, row.operation) || return_is_at_risk(thread, sp)) return RETURN_IS_NOT_WANTED;
        flags = CALL_OF_ALLOCATOR;
    }
    bool is_return_probed = row.operation != MT_OP_DELEGATE && !(row.flags & MT_ROW_RETURN_INSTRUCTIONS);
    bool is_at_risk = is_return_probed && return_is_at_risk(thread, sp);
    struct call* call = calls_push(&thread->calls);
    if (!call) {
        count(owner, MT_COUNT_BLOCKS_CALLS_FULL);
        return RETURN_IS_NOT_WANTED;
    }
    begin_call(call, sp, row_number, function);
    call->flags = flags;
    if (row.operation == MT_OP_DELEGATE) note_return_address(call, ctx, CALL_HAS_NO_RETURN);
    if (row.flags & MT_ROW_RETURN_INSTRUCTIONS) note_return_address(call, ctx, CALL_RETURNS_BY_INSTRUCTION);
    if (!note_arguments(thread, owner, call, ctx, &row)) {
        thread->calls.depth--;
        return RETURN_IS_NOT_WANTED;
    }
    if (samples && pass_by(thread, owner, ctx, &row, is_return_probed)) return RETURN_IS_NOT_WANTED;
    if (is_at_risk) {
        note_return_address(call, ctx, CALL_RETURN_MISSED);
        count(owner, MT_COUNT_RETURNS_MISSED);
        return RETURN_IS_NOT_WANTED;
    }
    return RETURN_IS_WANTED;
}

/* Records the block at `address` for `call`: the returning call or, when that was delegated, its delegate. */
static __always_inline void record_return(struct thread* thread, struct mt_owner* owner, const struct pt_regs* ctx,
                                          const struct call* call, u64 address) {
    if (call->flags & CALL_NOT_SAMPLED) return;
    if (!is_recorded_size(call->size_bytes)) {
        count(owner, MT_COUNT_BLOCKS_FILTERED);
        return;
    }
    expect_block(MT_BLOCK_KEY(thread->owner, address));
    u32 site = site_of_return(thread, owner, ctx, call);
    record_block(owner, thread->owner, address, call, site);
    if (is_collected(call->row)) note_untyped(thread, owner, address, call->size_bytes, site);
}

static __always_inline void leave_reallocate(struct thread* thread, struct mt_owner* owner, const struct pt_regs* ctx,
                                             struct call* call, u64 result) {
    bool gave_back = result != 0 || (call->size_bytes == 0 && call->address != 0) ||
                     (row_at(call->row).flags & MT_ROW_FREES_WHEN_FAILED);
    if (call->flags & CALL_HOLDS_BLOCK) {
        struct held_block held = call->held;
        call->flags &= ~CALL_HOLDS_BLOCK;
        if (gave_back)
            record_free(owner, thread->owner, call->address, &held, call->row);
        else if (!put_block(MT_BLOCK_KEY(thread->owner, call->address), &held, 0)) {
            add_free(owner, &held);
            count(owner, MT_COUNT_BLOCKS_LIVE_TABLE_FULL);
        }
    } else if ((call->flags & CALL_OLD_UNKNOWN) && gave_back) {
        record_unknown_free(owner, thread->owner, call->address);
    }
    if (result) record_return(thread, owner, ctx, call, result);
}

struct return_settling {
    struct thread* thread;
    struct mt_owner* owner;
    u32 index; /* of the returning call, while it is the newest of its stack */
    u64 sp;
};

/* A call that is newer than the returning one and deeper on its stack was left; 0: look again. */
static long settle_returned(u32 step, struct return_settling* context) {
    u32 top = context->thread->calls.depth - 1;
    if (top >= MT_MAX_CALLS || top <= context->index) return 1;
    const struct call* newer = &context->thread->calls.stack[top & (MT_MAX_CALLS - 1)];
    if (newer->sp > context->sp) return 1;
    abandon_call(context->thread, context->owner, top);
    return 0;
}

/* Forgets the calls that were left inside the one at `index`, which is returning. */
static __always_inline void settle_inner_calls(struct thread* thread, struct mt_owner* owner, u32 index, u64 sp) {
    if (index + 1 >= thread->calls.depth) return;
    struct return_settling settling = {.thread = thread, .owner = owner, .index = index, .sp = sp};
    bpf_loop(MT_MAX_CALLS, settle_returned, &settling, 0);
}

/* The call at `index` returns. */
static __always_inline int leave_call(struct thread* thread, struct mt_owner* owner, const struct pt_regs* ctx,
                                      u32 index) {
    struct call* call = &thread->calls.stack[index];
    struct mt_row row = row_at(call->row);
    u64 result = read_result(ctx);
    if (row.operation == MT_OP_FREE) return remove_call(thread, index);
    if ((row.flags & MT_ROW_SIZE_OF_STRING) && result) {
        call->size_bytes = string_bytes(thread, result);
        if (samples) sample_call(thread, owner, call);
    }
    if ((call->flags & CALL_THROWS) && result) disown_block(owner, MT_BLOCK_KEY(thread->owner, result));
    if (row.operation == MT_OP_RESIZE) result = result >= call->size_bytes ? call->address : 0;
    if (row.operation == MT_OP_ALLOCATE_OUT && (u32)result != 0)
        result = 0;
    else if (row.operation == MT_OP_ALLOCATE_OUT && !read_word(call->address, &result))
        result = 0;
    if (call->flags & CALL_DELEGATED) {
        /* When it failed, the delegate may try again or throw; when it succeeded, the delegate is done. */
        struct call* delegate = &thread->calls.stack[(index - 1) & (MT_MAX_CALLS - 1)];
        if (row_at(delegate->row).operation == MT_OP_REALLOCATE)
            leave_reallocate(thread, owner, ctx, delegate, result);
        else if (result)
            record_return(thread, owner, ctx, delegate, result);
        bool is_done = result || (delegate->flags & CALL_RETURNS_BY_INSTRUCTION);
        remove_call(thread, index);
        if (is_done) remove_call(thread, (index - 1) & (MT_MAX_CALLS - 1));
        return 0;
    }
    if (row.operation == MT_OP_REALLOCATE || row.operation == MT_OP_RESIZE)
        leave_reallocate(thread, owner, ctx, call, result);
    else if (changes_mappings(row.operation))
        leave_mapping(thread, owner, ctx, call, row.operation, result);
    else if (result)
        record_return(thread, owner, ctx, call, result);
    return remove_call(thread, index);
}

/* A return probe of a function of the table was hit. */
static __always_inline int leave_function(struct pt_regs* ctx) {
    struct mt_owner* owner;
    struct thread* thread = traced_thread(&owner);
    if (!thread) return 0;
    u64 sp = stack_pointer(ctx) - 8;
    u32 found = find_call(thread, sp, bpf_get_attach_cookie(ctx) & (MT_MAX_ROWS - 1));
    if (!found) return 0;
    u32 index = (found - 1) & (MT_MAX_CALLS - 1);
    settle_inner_calls(thread, owner, index, sp);
    return leave_call(thread, owner, ctx, index);
}

/* Did the call at `index` end in a jump to one whose return is seen by a return probe? That one comes in a moment. */
static __always_inline bool ends_in_newer_call(const struct thread* thread, u32 index, u64 sp) {
    u32 top = thread->calls.depth - 1;
    if (top >= MT_MAX_CALLS || top == index) return false;
    const struct call* newest = &thread->calls.stack[top & (MT_MAX_CALLS - 1)];
    return newest->sp == sp && (newest->flags & CALL_DELEGATED) && !(newest->flags & CALL_RETURNS_BY_INSTRUCTION);
}

/* A return instruction, or a jump out, of a function whose calls return so was hit. Other functions share that code:
 * it is the return of a call only when the stack says so. */
static __always_inline int leave_by_instruction(struct pt_regs* ctx) {
    struct mt_owner* owner;
    struct thread* thread = traced_thread(&owner);
    u64 sp = stack_pointer(ctx), return_address;
    if (!thread) return 0;
    u64 cookie = bpf_get_attach_cookie(ctx);
    if (is_counted_elsewhere(thread, cookie, instruction_pointer(ctx))) return 0;
    if (!thread->calls.depth || !read_word(sp, &return_address)) return 0;
    u32 found = find_returning_call(thread, sp, return_address);
    if (!found) return 0;
    u32 index = (found - 1) & (MT_MAX_CALLS - 1);
    if (ends_in_newer_call(thread, index, sp)) return 0;
    settle_inner_calls(thread, owner, index, sp);
    if (cookie & MT_COOKIE_UNSEEN_RETURN) {
        thread->calls.stack[index].flags |= CALL_ENDED_BY_JUMP;
        return 0;
    }
    thread->calls.stack[index].frame_pointer = frame_pointer(ctx);
    return leave_call(thread, owner, ctx, index);
}
