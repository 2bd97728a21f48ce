/* System calls that change mappings and that no probed function makes: of static programs, of Go's runtime, by
 * syscall(2). What a probed function does in the kernel is told by its probe, and not again. */
#pragma once

#include "mappings.h"

/* What a program at a tracepoint of one system call is given (kernel/trace/trace_syscalls.c, perf_call_bpf_enter). */
struct system_call_event {
    u64 reserved;
    u32 number;
    u32 padding;
    u64 value; /* of sys_exit: the result; of sys_enter: the first argument */
};

/* arch/x86/entry/syscalls/syscall_64.tbl. Calls of 32-bit programs have no such tracepoints. */
static __always_inline u32 operation_of(u32 number) {
    if (number == 9) return MT_OP_MAP;
    if (number == 10) return MT_OP_PROTECT;
    if (number == 11) return MT_OP_UNMAP;
    if (number == 12) return MT_OP_BREAK;
    if (number == 25) return MT_OP_REMAP;
    if (number == 28) return MT_OP_ADVISE;
    if (number == 30) return MT_OP_ATTACH;
    return number == 67 ? MT_OP_DETACH : MT_OP_NONE;
}

/* The registers with which the current task has entered the kernel. */
static __always_inline const struct pt_regs* user_registers(void) {
    return (const struct pt_regs*)bpf_task_pt_regs(bpf_get_current_task_btf());
}

/* What a system call is made in, by the calls in flight of its thread. */
enum surroundings {
    MADE_BY_PROGRAM = 0,
    MADE_BY_ALLOCATOR = 1,      /* inside a call of an allocator's function */
    MADE_BY_PROBED_MAPPING = 2, /* ... of a function that changes mappings, which tells it */
};

struct surroundings_search {
    struct thread* thread;
    u64 sp; /* of the user's code, as at the system call */
    u64 pc;
    u64 trampoline;
    u32 left; /* calls that are still to be looked at: the newest of them is next */
    enum surroundings found;
};

/* Does the call in flight `outer` still surround the system call? */
static __always_inline bool surrounds(const struct surroundings_search* search, const struct call* outer) {
    u64 slot = 0;
    if (outer->sp < search->sp || outer->sp - search->sp > NESTING_REACH_BYTES) return false;
    if (!read_word(outer->sp, &slot) || !call_slot_is_intact(outer, slot, search->trampoline)) return false;
    /* Nothing tells when it returned: a word may be left of it. */
    return !call_is_passed_by(outer) || is_in_file_of(outer, search->pc);
}

static long look_at_surrounding_call(u32 index, struct surroundings_search* search) {
    u32 top = search->left - 1;
    if (top >= MT_MAX_CALLS) return 1;
    search->left = top;
    const struct call* outer = &search->thread->calls.stack[top & (MT_MAX_CALLS - 1)];
    if (!surrounds(search, outer)) return 0;
    if ((outer->flags & CALL_THROWS) || signal_frame_between(search->thread, search->sp, outer->sp)) return 1;
    if (changes_mappings(rows[outer->row & (MT_MAX_ROWS - 1)].operation)) {
        search->found = MADE_BY_PROBED_MAPPING;
        return 1;
    }
    /* A collector calls the program's finalizers. */
    if (!is_collected(outer->row) || is_in_file_of(outer, search->pc)) search->found = MADE_BY_ALLOCATOR;
    return 1;
}

__noinline u32 surroundings_of(struct thread* thread, u64 sp, u64 pc) {
    if (!thread) return MADE_BY_PROBED_MAPPING;
    struct surroundings_search search = {.thread = thread,
                                         .sp = sp,
                                         .pc = pc,
                                         .trampoline = return_trampoline(),
                                         .left = thread->calls.depth,
                                         .found = MADE_BY_PROGRAM};
    bpf_loop(MT_MAX_CALLS, look_at_surrounding_call, &search, 0);
    return search.found;
}

/* Arguments of the system call, as the user's registers have them: rdi, rsi, rdx, r10 (System V AMD64 ABI, A.2.1). */
static __always_inline void read_system_call(struct call* call, const struct pt_regs* user, u32 operation,
                                             struct mapping_arguments* arguments) {
    bool has_old = operation != MT_OP_MAP && operation != MT_OP_ATTACH;
    bool has_size = operation != MT_OP_ATTACH && operation != MT_OP_DETACH && operation != MT_OP_BREAK;
    call->address = has_old ? user->di : 0;
    call->size_bytes = !has_size ? 0 : operation == MT_OP_REMAP ? user->dx : user->si;
    arguments->second = user->si;
    arguments->third = user->dx;
    arguments->fourth = user->r10;
}

/* A system call is entered, or one of which the entry says nothing is left: it is noted, and what is going is told. */
static __always_inline void note_system_call(struct thread* thread, struct mt_owner* owner, const struct pt_regs* user,
                                             u32 operation) {
    struct call* call = &thread->system_call;
    struct mapping_arguments arguments;
    call->row = 0;
    u32 surroundings = surroundings_of(thread, user->sp, user->ip);
    if (surroundings == MADE_BY_PROBED_MAPPING) return;
    /* Of what an allocator does inside, as much is told as by probes (maps_for_allocator). */
    if (surroundings == MADE_BY_ALLOCATOR && operation > MT_OP_REMAP) return;
    call->flags = CALL_IS_SYSTEM_CALL | (surroundings == MADE_BY_ALLOCATOR ? CALL_OF_ALLOCATOR : 0);
    call->old_size_bytes = call->protection = call->map_flags = 0;
    call->row = system_call_rows[operation & (MT_MAX_OPERATIONS - 1)];
    read_system_call(call, user, operation, &arguments);
    if (!note_mapping(thread, owner, call, &arguments, operation, user->ip)) call->row = 0;
}

/* brk(2) returns where the break is; of the others an error is a small negative number. */
static __always_inline bool system_call_has_failed(const struct call* call, u32 operation, u64 result) {
    if (operation == MT_OP_BREAK) return whole_pages(result) != call->size_bytes;
    return result >= -4095ull;
}

/* What a system call gives back is told before it is gone. */
static __always_inline int enter_system_call(const struct system_call_event* event) {
    struct mt_owner* owner;
    struct thread* thread = traced_thread(&owner);
    u32 operation = operation_of(event->number);
    if (thread && operation) note_system_call(thread, owner, user_registers(), operation);
    return 0;
}

static __always_inline bool is_seen_at_entry(u32 operation) {
    return operation == MT_OP_UNMAP || operation == MT_OP_REMAP || operation == MT_OP_BREAK ||
           operation == MT_OP_DETACH;
}

/* Tells what came of the system call that thread->system_call has. */
static __always_inline void tell_system_call(struct thread* thread, struct mt_owner* owner, const struct pt_regs* user,
                                             u32 operation, u64 result) {
    struct call* call = &thread->system_call;
    bool failed = system_call_has_failed(call, operation, result);
    u32 type = failed ? type_of_failure(call, operation) : type_of_success(call, operation);
    if (type == MT_EVENT_NONE) return;
    struct mapped_range range = failed ? range_of_failure(call, operation) : range_of_success(call, operation, result);
    u32 site = 0;
    if (has_site(call, type)) {
        walk_interrupted_stack(thread, user->ip, user->sp, user->bp);
        site = find_site(thread, owner, call->row);
    }
    send_mapping(thread, owner, type, call, &range, site, user->ip);
}

static __always_inline int leave_system_call(const struct system_call_event* event) {
    struct mt_owner* owner;
    struct thread* thread = traced_thread(&owner);
    u32 operation = operation_of(event->number);
    if (!thread || !operation) return 0;
    const struct pt_regs* user = user_registers();
    if (!is_seen_at_entry(operation)) note_system_call(thread, owner, user, operation);
    u32 row = thread->system_call.row;
    /* Else recording began after its entry. */
    if (row && row == system_call_rows[operation & (MT_MAX_OPERATIONS - 1)])
        tell_system_call(thread, owner, user, operation, event->value);
    thread->system_call.row = 0;
    return 0;
}
