/* Allocator calls in flight on one thread. Pure: no helper calls, compiled for the host by tests/unit.
 *
 *   calls[0] .. calls[depth - 1]   oldest first. On one stack a newer call has a lower `sp`; calls of other stacks of
 * the same thread (signal stacks, fibers) may stand between.
 *
 * A call is named by (sp, row): sp is the address of its return address, the same at entry and, after the return popped
 * it, 8 below the stack pointer. */
#pragma once

#include "memtrace/abi.h"

enum call_flags {
    CALL_DELEGATED = 1,      /* made by the delegate (operator new) below it, on whose behalf the block is recorded */
    CALL_HOLDS_BLOCK = 2,    /* took its old block out of the live table: settled at return */
    CALL_OLD_UNKNOWN = 4,    /* its old block was not recorded */
    CALL_RETURN_MISSED = 8,  /* its return will not be reported; it only suppresses what it calls */
    CALL_HAS_NO_RETURN = 16, /* a delegate: is never return-probed */
    CALL_RETURNS_BY_INSTRUCTION = 32, /* its return is seen at a return instruction of its own code */
    CALL_NOT_SAMPLED = 256,           /* its block is not recorded */
    CALL_OF_ALLOCATOR = 512,          /* a mapping's, made inside an allocator's call */
    CALL_IS_SYSTEM_CALL = 1024,       /* a mapping's, not by a function that is probed */
    CALL_THROWS = 128,                /* ... or it failed: it will try again, or be left by an exception */
    CALL_ENDED_BY_JUMP =
        64, /* ... or it went on where that is not seen, unless an allocator function is entered there */
};

/* A call that was not sampled and whose return will not be seen. */
#define CALL_PASSED_BY (CALL_NOT_SAMPLED | CALL_RETURN_MISSED)
/* Calls whose return address stands on the stack as it is. */
#define CALL_KEEPS_RETURN_ADDRESS (CALL_HAS_NO_RETURN | CALL_RETURN_MISSED | CALL_RETURNS_BY_INSTRUCTION)

struct held_block {
    mt_u64 size_bytes;
    mt_u64 birth_ns;
    mt_u32 site;
    mt_u32 forks; /* mt_block.forks */
    mt_u32 sampling_mean_bytes;
};

struct call {
    mt_u64 sp;             /* address of the return address */
    mt_u64 return_address; /* of calls that keep it; 0 in others */
    mt_u64 frame_pointer;  /* of the caller, in calls that keep their return address */
    mt_u64 function;       /* address of its probe; of a delegate: of the last probe passed in the chain of delegates */
    mt_u64 inner_function; /* address of the probe of the last call that it suppressed */
    mt_u64 size_bytes;     /* asked for */
    mt_u64 address;        /* old block or old range; where to store the result (ALLOCATE_OUT); the old break */
    mt_u64 old_size_bytes; /* REMAP */
    mt_u32 protection;     /* MAP, PROTECT */
    mt_u32 map_flags;      /* MAP, REMAP, ADVISE */
    struct held_block held; /* REALLOCATE */
    mt_u32 row;
    mt_u32 flags;               /* enum call_flags */
    mt_u32 sampling_mean_bytes; /* in force at its entry */
    mt_u32 reserved;
};

struct calls {
    mt_u32 depth;
    mt_u32 reserved;
    struct call stack[MT_MAX_CALLS];
};

/* Was the call not sampled, so that nothing tells when it returns? */
static inline int call_is_passed_by(const struct call* call) {
    return (call->flags & CALL_PASSED_BY) == CALL_PASSED_BY;
}

/* Bytes behind a delegate's probe within which its own call instructions lie: operator new has less than 200. */
#define DELEGATE_REACH_BYTES 512
/* Farther apart than this, two allocator calls are on different stacks: no allocator's own frames are so large. */
#define NESTING_REACH_BYTES (16 << 10)
/* A signal frame (red zone 128, ucontext 304, siginfo 128, x87/SSE state 512) cannot fit in less. */
#define SIGNAL_FRAME_MIN_BYTES 1072

/* Was the call that returns to `return_address` made by the delegate itself, not by what it called (a new_handler)? */
static inline int call_is_made_by_delegate(const struct call* delegate, mt_u64 return_address) {
    return return_address > delegate->function && return_address - delegate->function < DELEGATE_REACH_BYTES;
}

/* Is the word at a call's `sp` what a call in flight has there: the kernel's return trampoline (0: this address space
 * has none), or the return address that it keeps? */
static inline int call_slot_is_intact(const struct call* call, mt_u64 slot, mt_u64 trampoline) {
    if (trampoline && slot == trampoline) return 1;
    return (call->flags & CALL_KEEPS_RETURN_ADDRESS) && slot == call->return_address;
}

/* The newest call named (sp, row), as index + 1; 0 if there is none. */
static inline mt_u32 calls_find(const struct calls* calls, mt_u64 sp, mt_u32 row) {
    /* Most often the one that was made last. */
    mt_u32 top = calls->depth - 1;
    if (top < MT_MAX_CALLS && calls->stack[top & (MT_MAX_CALLS - 1)].sp == sp &&
        calls->stack[top & (MT_MAX_CALLS - 1)].row == row)
        return top + 1;
    for (mt_u32 index = MT_MAX_CALLS; index > 0; index--) {
        const struct call* call = &calls->stack[(index - 1) & (MT_MAX_CALLS - 1)];
        if (index <= calls->depth && call->sp == sp && call->row == row) return index;
    }
    return 0;
}

/* The newest call at `sp` that returns by an instruction, as index + 1; 0 if there is none. `slot` is the word at `sp`:
 * its return address, or the trampoline where somebody else has a return probe on the function. */
static inline mt_u32 calls_find_returning(const struct calls* calls, mt_u64 sp, mt_u64 slot, mt_u64 trampoline) {
    for (mt_u32 index = MT_MAX_CALLS; index > 0; index--) {
        const struct call* call = &calls->stack[(index - 1) & (MT_MAX_CALLS - 1)];
        if (index <= calls->depth && call->sp == sp && (call->flags & CALL_RETURNS_BY_INSTRUCTION) &&
            call_slot_is_intact(call, slot, trampoline))
            return index;
    }
    return 0;
}

/* Takes out the call at `index`; newer ones move down. */
static inline void calls_remove(struct calls* calls, mt_u32 index) {
    for (mt_u32 to = 0; index + 1 < calls->depth && to + 1 < MT_MAX_CALLS; to++)
        if (to >= index && to + 1 < calls->depth) calls->stack[to] = calls->stack[to + 1];
    if (calls->depth > 0) calls->depth--;
}

/* Room for one more call on top, or 0 when MT_MAX_CALLS are in flight. */
static inline struct call* calls_push(struct calls* calls) {
    mt_u32 depth = calls->depth;
    if (depth >= MT_MAX_CALLS) return 0;
    calls->depth = depth + 1;
    return &calls->stack[depth & (MT_MAX_CALLS - 1)];
}
