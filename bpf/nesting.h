/* Is an allocator call the program's own, or one that an allocator makes inside another? The outermost function of the
 * unbroken run of allocator frames owns the block. Signal handlers, new_handlers and other stacks break the run. */
#pragma once

#include "arguments.h"
#include "ledger.h"
#include "maps.h"
#include "stacks.h"
#include "targets.h"

/* The call keeps its return address on the stack: no return probe replaces it. */
static __always_inline void note_return_address(struct call* call, const struct pt_regs* ctx, u32 flag) {
    call->flags |= flag;
    call->frame_pointer = frame_pointer(ctx);
    read_word(call->sp, &call->return_address);
}

enum relation {
    CALL_IS_OUTERMOST = 0,
    CALL_IS_INNER = 1,        /* suppressed: the call that it is inside of owns what it does */
    CALL_IS_FOR_DELEGATE = 2, /* allocates on behalf of the delegate on top of the stack of calls */
};

/* Words of an x86-64 signal frame (arch/x86/include/asm/sigframe.h, struct rt_sigframe): the saved stack pointer stands
 * three words below the saved segment registers, which in 64-bit user code are always these. */
#define SAVED_SEGMENTS 0x002b000000000033ull
#define SAVED_SP_WORDS_BEFORE_SEGMENTS 3

struct signal_frame_search {
    struct thread* thread;
    u64 address;
    u64 end;
    bool is_found;
};

static long search_signal_frame(u32 index, struct signal_frame_search* search) {
    u64 word, saved_sp;
    u64 address = search->address;
    if (address >= search->end || !read_stack_word(search->thread, address, &word)) return 1;
    search->address = address + 8;
    if (word != SAVED_SEGMENTS) return 0;
    if (!read_word(address - 8 * SAVED_SP_WORDS_BEFORE_SEGMENTS, &saved_sp)) return 0;
    if (saved_sp <= address || saved_sp > search->end) return 0;
    search->is_found = true;
    return 1;
}

/* Did a signal interrupt the call at `outer_sp`, and is the code at `sp` its handler's? */
__noinline int signal_frame_between(struct thread* thread, u64 sp, u64 outer_sp) {
    if (!thread || outer_sp - sp < SIGNAL_FRAME_MIN_BYTES) return false;
    thread->window_size_bytes = 0;
    struct signal_frame_search search = {.thread = thread, .address = sp, .end = outer_sp};
    bpf_loop(NESTING_REACH_BYTES / 8, search_signal_frame, &search, 0);
    return search.is_found;
}

static __always_inline bool is_on_signal_stack(u64 sp) {
    struct task_struct* task = bpf_get_current_task_btf();
    return sp - task->sas_ss_sp < task->sas_ss_size;
}

static long note_mapping_bounds(struct task_struct* task, struct vm_area_struct* mapping, u64* bounds) {
    bounds[0] = mapping->vm_start;
    bounds[1] = mapping->vm_end;
    return 0;
}

/* Are two addresses in one mapping? When the mappings cannot be looked at (another thread is changing them), yes. */
__noinline int is_same_mapping(u64 address, u64 other_address) {
    u64 bounds[2] = {0, 0};
    if (bpf_find_vma(bpf_get_current_task_btf(), address, note_mapping_bounds, bounds, 0)) return true;
    return other_address >= bounds[0] && other_address < bounds[1];
}

/* Are two stack pointers of this thread on one stack? A fiber's stack is a mapping of its own, or far away. */
__noinline int is_same_stack(u64 sp, u64 other_sp) {
    if (is_on_signal_stack(sp) != is_on_signal_stack(other_sp)) return false;
    return is_same_mapping(sp, other_sp);
}

__noinline int remove_call(struct thread* thread, u32 index) {
    if (!thread) return 0;
    calls_remove(&thread->calls, index);
    return 0;
}

/* The newest call in flight named (sp, row), as index + 1; 0 if there is none. */
__noinline u32 find_call(struct thread* thread, u64 sp, u32 row) {
    return thread ? calls_find(&thread->calls, sp, row) : 0;
}

/* The newest call at `sp`, where the word `slot` is, that returns by an instruction, as index + 1; 0 if there is none.
 */
__noinline u32 find_returning_call(struct thread* thread, u64 sp, u64 slot) {
    return thread ? calls_find_returning(&thread->calls, sp, slot, return_trampoline()) : 0;
}

/* Calls in flight that may throw have failed: what is called from now on is a new_handler's, or an exception's. */
__noinline int note_failure(struct thread* thread) {
    if (!thread) return 0;
    for (u32 index = 0; index < MT_MAX_CALLS; index++)
        if (thread->calls.stack[index].flags & CALL_RETURNS_BY_INSTRUCTION)
            thread->calls.stack[index].flags |= CALL_THROWS;
    return 0;
}

/* Forgets the call at `index`, which will never return. */
__noinline int abandon_call(struct thread* thread, struct mt_owner* owner, u32 index) {
    if (!thread || !owner || index >= MT_MAX_CALLS) return 0;
    struct call* call = &thread->calls.stack[index & (MT_MAX_CALLS - 1)];
    if (call_is_passed_by(call)) return remove_call(thread, index);
    if (call->flags & CALL_HOLDS_BLOCK) {
        struct held_block held = call->held;
        record_free(owner, thread->owner, call->address, &held, call->row);
    }
    u32 operation = rows[call->row & (MT_MAX_ROWS - 1)].operation;
    if (operation == MT_OP_REALLOCATE || operation == MT_OP_RESIZE)
        count(owner, MT_COUNT_REALLOCS_UNRESOLVED);
    else if (operation == MT_OP_FREE)
        ; /* its block was recorded when it was entered */
    else if (call->flags & CALL_ENDED_BY_JUMP)
        count(owner, MT_COUNT_RETURNS_MISSED);
    else if (!(call->flags & (CALL_DELEGATED | CALL_RETURN_MISSED | CALL_OF_ALLOCATOR)))
        count(owner, MT_COUNT_CALLS_ABANDONED);
    remove_call(thread, index);
    return 0;
}

struct settling {
    struct thread* thread;
    struct mt_owner* owner;
    u64 sp;
    u64 trampoline;
    u64 return_address;
    u64 function; /* address of its probe */
    u32 row;
    enum relation relation;
};

enum containment {
    CALL_IS_INSIDE = 0,
    CALL_IS_ANOTHER_RUN = 1, /* the outer call is still in flight, but not what called this one */
    CALL_OUTLIVES_OUTER = 2, /* the outer call was left */
};

static __always_inline bool is_in_file_of(const struct call* outer, u64 return_address) {
    if (is_same_mapping(outer->function, return_address)) return true;
    return outer->inner_function && is_same_mapping(outer->inner_function, return_address);
}

/* An allocator's own calls come from its own file; through the last suppressed call they may come from a further one.
 * A call from elsewhere is the program's: a signal handler's, or the outer call was left and its stack not yet used. */
static __always_inline enum containment containment_in(struct settling* new_call, const struct call* outer) {
    bool is_interrupted = signal_frame_between(new_call->thread, new_call->sp, outer->sp);
    if (is_interrupted || (outer->flags & CALL_THROWS)) return CALL_IS_ANOTHER_RUN;
    /* A suppressed call ended in a jump to this one, after a return probe had replaced its return address. */
    if (new_call->trampoline && new_call->return_address == new_call->trampoline) return CALL_IS_INSIDE;
    if (is_in_file_of(outer, new_call->return_address)) return CALL_IS_INSIDE;
    /* A collector calls the program's finalizers. */
    if (is_collected(outer->row)) return CALL_IS_ANOTHER_RUN;
    return CALL_OUTLIVES_OUTER;
}

/* A call at the very place of another one: a tail call (reallocarray's to realloc), or the other one is over. */
static __always_inline bool is_tail_call(const struct settling* new_call, const struct call* outer) {
    if (outer->function == new_call->function) return false;
    /* A delegate's probe is that of the last one in its chain. */
    if ((outer->flags & CALL_HAS_NO_RETURN) && outer->row == new_call->row) return false;
    if (outer->flags & CALL_KEEPS_RETURN_ADDRESS) return new_call->return_address == outer->return_address;
    return new_call->trampoline && new_call->return_address == new_call->trampoline;
}

static __always_inline bool is_free(u32 row) {
    return rows[row & (MT_MAX_ROWS - 1)].operation == MT_OP_FREE;
}

/* Is a tail call of `row` how `outer` gets its result? Its return is then seen as that of `row`. */
static __always_inline bool ends_in(const struct call* outer, u32 row) {
    if (outer->flags & CALL_HAS_NO_RETURN) return true;
    return (outer->flags & CALL_RETURNS_BY_INSTRUCTION) &&
           !(rows[row & (MT_MAX_ROWS - 1)].flags & MT_ROW_RETURN_INSTRUCTIONS);
}

/* Looks at the newest call in flight; 0: it was over and is forgotten, look again. */
static long settle_top(u32 index, struct settling* new_call) {
    struct thread* thread = new_call->thread;
    u32 top = thread->calls.depth - 1;
    if (top >= MT_MAX_CALLS) return 1;
    const struct call* outer = &thread->calls.stack[top & (MT_MAX_CALLS - 1)];
    u64 slot = 0;
    bool is_intact = read_word(outer->sp, &slot) && call_slot_is_intact(outer, slot, new_call->trampoline);
    if (outer->sp == new_call->sp && is_tail_call(new_call, outer)) {
        new_call->relation = ends_in(outer, new_call->row) ? CALL_IS_FOR_DELEGATE : CALL_IS_INNER;
        /* Neither is seen to return, and nothing of the outer one is left. */
        if (is_free(outer->row) && is_free(new_call->row)) remove_call(thread, top);
        return 1;
    }
    if (outer->sp > new_call->sp && is_intact) {
        if (outer->sp - new_call->sp > NESTING_REACH_BYTES) return 1;
        if (outer->flags & CALL_HAS_NO_RETURN) {
            if (call_is_made_by_delegate(outer, new_call->return_address)) new_call->relation = CALL_IS_FOR_DELEGATE;
            return 1;
        }
        enum containment containment = containment_in(new_call, outer);
        if (containment == CALL_IS_INSIDE) new_call->relation = CALL_IS_INNER;
        if (containment != CALL_OUTLIVES_OUTER) return 1;
    }
    if (outer->sp < new_call->sp && is_intact && !is_same_stack(new_call->sp, outer->sp)) return 1;
    abandon_call(thread, new_call->owner, top);
    return 0;
}

/* How the call of `row` at `sp`, whose probe is at `function`, stands to those in flight; forgets those that are over.
 */
__noinline u32 settle_calls(struct thread* thread, struct mt_owner* owner, u64 sp, u32 row, u64 function) {
    if (!thread || !owner) return CALL_IS_OUTERMOST;
    struct settling new_call = {.thread = thread,
                                .owner = owner,
                                .sp = sp,
                                .row = row,
                                .function = function,
                                .trampoline = return_trampoline(),
                                .relation = CALL_IS_OUTERMOST};
    if (!read_word(sp, &new_call.return_address)) return CALL_IS_OUTERMOST;
    bpf_loop(MT_MAX_CALLS, settle_top, &new_call, 0);
    return new_call.relation;
}
