/* Calls that change the mappings of their address space: what is told of them, and when. The ordering law: what goes is
 * told at entry, before somebody else can map there, what comes at return. */
#pragma once

#include "arguments.h"
#include "nesting.h"
#include "stack_memo.h"
#include "stacks.h"
#include "targets.h"

#define MAP_FAILED ~0ull
#define PAGE_BYTES 4096ull
/* include/uapi/asm-generic/mman-common.h */
#define PROT_READ 1
#define PROT_WRITE 2
#define MAP_SHARED 1
#define MAP_PRIVATE 2
#define MAP_ANONYMOUS 0x20
#define MADV_DONTNEED 4
#define MADV_FREE 8
#define MADV_REMOVE 9
#define MADV_DONTNEED_LOCKED 24

/* Takes the stack of the returning call and finds its site. A delegated call's stack is its delegate's. */
static __always_inline u32 site_of_return(struct thread* thread, struct mt_owner* owner, const struct pt_regs* ctx,
                                          const struct call* call) {
    struct walk_start start = {.caller = instruction_pointer(ctx),
                               .stack_pointer = stack_pointer(ctx),
                               .frame_pointer = frame_pointer(ctx),
                               .row = call->row};
    /* Read before the branch, which clang would else make of their addresses: "dereference of modified ctx ptr". */
    asm volatile("" : "+r"(start.caller), "+r"(start.stack_pointer), "+r"(start.frame_pointer));
    if (call->flags & CALL_KEEPS_RETURN_ADDRESS) {
        start.caller = call->return_address;
        start.stack_pointer = call->sp + 8;
        start.frame_pointer = call->frame_pointer;
    }
    return site_of_stack(thread, owner, &start);
}

static __always_inline bool changes_mappings(u32 operation) {
    return (operation >= MT_OP_MAP && operation <= MT_OP_REMAP) ||
           (operation >= MT_OP_BREAK && operation <= MT_OP_DETACH);
}

static __always_inline bool moves_break(u32 operation) {
    return operation == MT_OP_BREAK || operation == MT_OP_MOVE_BREAK;
}

static __always_inline bool is_discard(u64 advice) {
    return advice == MADV_DONTNEED || advice == MADV_FREE || advice == MADV_REMOVE || advice == MADV_DONTNEED_LOCKED;
}

static __always_inline u64 whole_pages(u64 address) {
    return (address + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
}

/* A range of a mapping event. */
struct mapped_range {
    u64 address;
    u64 size_bytes;
};

static __always_inline void send_mapping(struct thread* thread, struct mt_owner* owner, u32 type,
                                         const struct call* call, const struct mapped_range* range, u32 site,
                                         u64 caller) {
    if (!emit_mapping_event(type, thread->owner, call, range->address, range->size_bytes, site, caller))
        count(owner, MT_COUNT_MAPPINGS_RING_FULL);
}

/* What a call to move the break gives back, as whole pages. */
static __always_inline struct mapped_range range_below_break(const struct call* call) {
    struct mapped_range range = {call->size_bytes, call->address - call->size_bytes};
    return range;
}

/* Notes the pages that end where the break is (`address`) and where it shall be (`size_bytes`). False: it stays where
 * it is, which it also does when it is told to go below its start: brk(0) asks for it. */
static __always_inline bool note_break(struct call* call, u32 operation) {
    struct task_struct* task = bpf_get_current_task_btf();
    if (!task->mm) return false;
    u64 now = task->mm->brk;
    u64 wanted = operation == MT_OP_BREAK ? call->address : now + call->size_bytes;
    if (wanted < task->mm->start_brk) return false;
    call->size_bytes = whole_pages(wanted);
    call->address = whole_pages(now);
    return call->size_bytes != call->address;
}

/* Arguments of a call that changes mappings that no row names, by their positions. */
struct mapping_arguments {
    u64 second;
    u64 third;
    u64 fourth;
};

/* Remembers the arguments of a call that changes mappings, made at `caller`, and tells what is going. False: its return
 * says nothing. */
static __always_inline bool note_mapping(struct thread* thread, struct mt_owner* owner, struct call* call,
                                         const struct mapping_arguments* arguments, u32 operation, u64 caller) {
    struct mapped_range going = {call->address, call->size_bytes};
    u32 type = MT_EVENT_NONE;
    if (operation == MT_OP_MAP || operation == MT_OP_PROTECT) call->protection = arguments->third;
    if (operation == MT_OP_MAP || operation == MT_OP_REMAP) call->map_flags = arguments->fourth;
    if (operation == MT_OP_ADVISE) {
        call->map_flags = arguments->third;
        if (!is_discard(call->map_flags)) return false;
    }
    if (operation == MT_OP_ATTACH) {
        call->protection = PROT_READ;
        call->map_flags = MAP_SHARED;
    }
    if (operation == MT_OP_REMAP) {
        call->old_size_bytes = going.size_bytes = arguments->second;
        type = MT_EVENT_REMAP;
    }
    if (operation == MT_OP_UNMAP) type = MT_EVENT_UNMAP;
    if (operation == MT_OP_DETACH) type = MT_EVENT_DETACH;
    if (moves_break(operation)) {
        if (!note_break(call, operation)) return false;
        call->map_flags = MAP_PRIVATE | MAP_ANONYMOUS;
        call->protection = PROT_READ | PROT_WRITE;
        going = range_below_break(call);
        if (call->size_bytes < call->address) type = MT_EVENT_UNMAP;
    }
    if (type != MT_EVENT_NONE) send_mapping(thread, owner, type, call, &going, 0, caller);
    return true;
}

/* ... of a call whose return address stands at call->sp. */
static __always_inline bool note_mapping_call(struct thread* thread, struct mt_owner* owner, struct call* call,
                                              const struct pt_regs* ctx, u32 operation) {
    struct mapping_arguments arguments = {.second = ctx->si, .third = ctx->dx, .fourth = ctx->cx};
    u64 caller = 0;
    read_word(call->sp, &caller);
    return note_mapping(thread, owner, call, &arguments, operation, caller);
}

/* How the kernel side tells that what it told at entry did not happen; MT_EVENT_NONE: it told nothing. */
static __always_inline u32 type_of_failure(const struct call* call, u32 operation) {
    if (operation == MT_OP_REMAP) return MT_EVENT_REMAP_FAILED;
    if (operation == MT_OP_UNMAP || operation == MT_OP_DETACH) return MT_EVENT_UNMAP_FAILED;
    if (moves_break(operation) && call->size_bytes < call->address) return MT_EVENT_UNMAP_FAILED;
    return MT_EVENT_NONE;
}

/* ... that it happened; MT_EVENT_NONE: entry said all. */
static __always_inline u32 type_of_success(const struct call* call, u32 operation) {
    if (operation == MT_OP_MAP || operation == MT_OP_ATTACH) return MT_EVENT_MAP;
    if (operation == MT_OP_REMAP) return MT_EVENT_REMAP_DONE;
    if (operation == MT_OP_PROTECT) return MT_EVENT_PROTECT;
    if (operation == MT_OP_ADVISE) return MT_EVENT_DISCARD;
    if (moves_break(operation) && call->size_bytes > call->address) return MT_EVENT_MAP;
    return MT_EVENT_NONE;
}

/* mmap, mremap, sbrk and shmat return an address, the others an int. */
static __always_inline bool has_failed(u32 operation, u64 result) {
    bool returns_address = operation == MT_OP_MAP || operation == MT_OP_REMAP || operation == MT_OP_MOVE_BREAK ||
                           operation == MT_OP_ATTACH;
    return returns_address ? result == MAP_FAILED : (u32)result != 0;
}

/* The size of the mapping at `address`; 0 where it cannot be looked at, because another thread changes mappings. */
__noinline u64 mapping_bytes(u64 address) {
    u64 bounds[2] = {0, 0};
    if (bpf_find_vma(bpf_get_current_task_btf(), address, note_mapping_bounds, bounds, 0)) return 0;
    return bounds[1] - bounds[0];
}

static __always_inline struct mapped_range range_of_success(const struct call* call, u32 operation, u64 result) {
    struct mapped_range range = {call->address, call->size_bytes};
    if (operation == MT_OP_MAP || operation == MT_OP_REMAP || operation == MT_OP_ATTACH) range.address = result;
    if (operation == MT_OP_ATTACH) range.size_bytes = mapping_bytes(result);
    if (operation == MT_OP_MOVE_BREAK) range.address = whole_pages(result);
    if (moves_break(operation)) range.size_bytes = call->size_bytes - call->address;
    return range;
}

/* The range of a call that failed: what it told at entry. */
static __always_inline struct mapped_range range_of_failure(const struct call* call, u32 operation) {
    struct mapped_range range = {call->address, call->size_bytes};
    if (operation == MT_OP_REMAP) range.size_bytes = call->old_size_bytes;
    return moves_break(operation) ? range_below_break(call) : range;
}

static __always_inline bool has_site(const struct call* call, u32 type) {
    return (type == MT_EVENT_MAP || type == MT_EVENT_REMAP_DONE) && !(call->flags & CALL_OF_ALLOCATOR);
}

/* A call that changes mappings returns. */
static __always_inline void leave_mapping(struct thread* thread, struct mt_owner* owner, const struct pt_regs* ctx,
                                          const struct call* call, u32 operation, u64 result) {
    bool failed = has_failed(operation, result);
    u32 type = failed ? type_of_failure(call, operation) : type_of_success(call, operation);
    if (type == MT_EVENT_NONE) return;
    struct mapped_range range = failed ? range_of_failure(call, operation) : range_of_success(call, operation, result);
    u32 site = has_site(call, type) ? site_of_return(thread, owner, ctx, call) : 0;
    send_mapping(thread, owner, type, call, &range, site, instruction_pointer(ctx));
}
