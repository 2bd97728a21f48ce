/* Walks a user stack: by call-frame information, and by frame pointer only where an address has none. */
#pragma once

#include "arguments.h"
#include "config.h"
#include "maps.h"
#include "unwind_rules.h"
#include "user_memory.h"

/* Farther up than this a saved frame pointer is data, not a frame. */
#define FRAME_MAX_BYTES (1ull << 20)
#define LOWEST_CODE_ADDRESS 0x1000
/* struct rt_sigframe of x86-64 above its return address: ucontext at 0, registers at 40 (arch/x86/include/uapi/asm). */
#define SIGNAL_FRAME_RBP 120
#define SIGNAL_FRAME_RSP 160
#define SIGNAL_FRAME_RIP 168
/* Return probes pending on one thread that are looked through for the address behind a trampoline. */
#define MAX_RETURN_INSTANCES 64

/* The walk depends on the stack word at `address`: whoever finds the same words walks the same way. */
static __always_inline void note_word(struct thread* thread, u64 address) {
    u64 offset = address - thread->walk_start;
    u32 index = thread->noted_words;
    if (index >= MEMO_WORDS || offset >= WINDOW_BYTES || (offset & 7)) {
        thread->noted_words = NOT_NOTED;
        return;
    }
    thread->noted_offsets[index] = offset / 8;
    thread->noted_words = index + 1;
}

/* The walk depends on the frame pointer, that is, on where it came from. */
static __always_inline void note_frame_pointer(struct thread* thread) {
    if (thread->frame_pointer_at == FRAME_POINTER_OF_START)
        thread->needs_frame_pointer = 1;
    else if (thread->frame_pointer_at != FRAME_POINTER_IS_CONSTANT)
        note_word(thread, thread->frame_pointer_at);
}

static __always_inline void add_frame(struct thread* thread, u64 return_address) {
    u32 index = thread->frame_count;
    if (index >= MT_MAX_FRAMES) return;
    thread->frames[index & MT_MAX_FRAMES] = return_address;
    thread->frame_count = index + 1;
}

/* A stack is known by where its frames are in their files: addresses change from one library to the next that is mapped
 * there. */
static __always_inline void add_place(struct thread* thread) {
    u64 first = (thread->hash[0] ^ thread->place) * 0xff51afd7ed558ccdull;
    thread->hash[0] = first ^ (first >> 32);
    u64 second = (thread->hash[1] + thread->place) * 0x9e3779b97f4a7c15ull;
    thread->hash[1] = second ^ (second >> 29);
}

/* The address to which the kernel makes hijacked calls return, 0 if this address space has none yet
 * (kernel/events/uprobes.c, get_trampoline_vaddr). */
static __always_inline u64 return_trampoline(void) {
    struct task_struct* task = bpf_get_current_task_btf();
    struct xol_area* area = task->mm->uprobes_state.xol_area;
    return area ? area->vaddr : 0;
}

/* The return address that a pending return probe replaced in the stack word at `slot` (kernel/events/uprobes.c). */
__noinline u64 address_behind_trampoline(u64 trampoline, u64 slot) {
    struct task_struct* task = bpf_get_current_task_btf();
    struct uprobe_task* utask = task->utask;
    if (!utask) return trampoline;
    struct return_instance* instance = utask->return_instances;
    for (u32 index = 0; index < MAX_RETURN_INSTANCES && instance; index++) {
        if (instance->stack == slot && instance->orig_ret_vaddr != trampoline) return instance->orig_ret_vaddr;
        instance = instance->next;
    }
    return trampoline;
}

/* Ends the walk for a reason that the site will tell. */
static __always_inline long stop_walk(struct thread* thread, u32 reason) {
    thread->walk_flags |= reason;
    return 1;
}

/* The caller returns to the word at `slot`; its registers are `cfa` and `frame_pointer`. */
static __always_inline long enter_caller(struct thread* thread, u64 slot, u64 cfa, u64 frame_pointer) {
    u64 return_address;
    if (!read_stack_word(thread, slot, &return_address)) return stop_walk(thread, MT_SITE_STACK_UNREADABLE);
    note_word(thread, slot);
    if (return_address == thread->trampoline && return_address) {
        return_address = address_behind_trampoline(return_address, slot);
        thread->noted_words = NOT_NOTED;
    }
    if (return_address < LOWEST_CODE_ADDRESS) return 1;
    if (cfa <= thread->stack_pointer) return stop_walk(thread, MT_SITE_STACK_NO_PROGRESS);
    if (thread->frame_count >= max_stack) return stop_walk(thread, folds_stacks ? 0 : MT_SITE_STACK_TRUNCATED);
    add_frame(thread, return_address);
    thread->pc = return_address - 1;
    thread->is_interrupted = 0;
    thread->stack_pointer = cfa;
    thread->frame_pointer = frame_pointer;
    return 0;
}

/* Whether a call instruction ends at `return_address`: call rel32, or call by register or memory (FF /2). */
__noinline int follows_call(u64 return_address) {
    u8 code[8] = {};
    if (bpf_probe_read_user(code, sizeof code - 1, (const void*)(return_address - 7))) return false;
    if (code[2] == 0xe8) return true;
    bool is_indirect = false;
    for (u32 length = 2; length <= 7; length++)
        is_indirect |= code[7 - length] == 0xff && (code[8 - length] & 0x38) == 0x10;
    return is_indirect;
}

/* Go calls C on another stack and leaves rbp at the frame of its own: a frame when what it returns to is behind a call.
 */
__noinline int is_frame_of_other_stack(struct thread* thread, u64 frame) {
    u64 return_address;
    if (!thread || (frame & 7)) return false;
    /* Just below the stack pointer is what is left of calls that have returned. */
    if (thread->stack_pointer - frame <= FRAME_MAX_BYTES) return false;
    if (!read_stack_word(thread, frame + 8, &return_address) || !follows_call(return_address)) return false;
    /* The stack that is left says nothing about the order on this one. */
    thread->stack_pointer = frame;
    return true;
}

/* A step where there is no CFI. The frame pointer of code that keeps none is data, which may even be the address of
 * data on the stack: then this is where the walk ends. */
__noinline int walk_by_frame_pointer(struct thread* thread) {
    if (!thread) return 1;
    thread->noted_words = NOT_NOTED;
    u64 frame = thread->frame_pointer, caller_frame;
    /* A thread starts with rbp 0 (System V AMD64 ABI, 3.4.1). */
    if (frame == 0) return 1;
    bool is_frame = !(frame & 7) && frame >= thread->stack_pointer && frame - thread->stack_pointer <= FRAME_MAX_BYTES;
    if (!is_frame) is_frame = is_frame_of_other_stack(thread, frame);
    u64 return_address;
    if (!is_frame || !read_stack_word(thread, frame, &caller_frame) ||
        !read_stack_word(thread, frame + 8, &return_address) || return_address < LOWEST_CODE_ADDRESS)
        return stop_walk(thread, MT_SITE_STACK_NO_CFI);
    if (caller_frame == frame) return stop_walk(thread, MT_SITE_STACK_NO_PROGRESS);
    return enter_caller(thread, frame + 8, frame + 16, caller_frame);
}

__noinline int walk_signal_frame(struct thread* thread) {
    if (!thread) return 1;
    thread->noted_words = NOT_NOTED;
    u64 sp = thread->stack_pointer, interrupted_sp, interrupted_pc, frame_pointer;
    if (!read_word(sp + SIGNAL_FRAME_RBP, &frame_pointer) || !read_word(sp + SIGNAL_FRAME_RSP, &interrupted_sp) ||
        !read_word(sp + SIGNAL_FRAME_RIP, &interrupted_pc))
        return stop_walk(thread, MT_SITE_STACK_UNREADABLE);
    if (thread->frame_count >= max_stack) return stop_walk(thread, folds_stacks ? 0 : MT_SITE_STACK_TRUNCATED);
    add_frame(thread, interrupted_pc);
    thread->pc = interrupted_pc;
    thread->is_interrupted = 1;
    thread->stack_pointer = interrupted_sp;
    thread->frame_pointer = frame_pointer;
    return 0;
}

static __always_inline bool find_cfa(struct thread* thread, const struct mt_unwind_rule* rule, u64* cfa) {
    bool is_rbp = rule->cfa_kind == MT_CFA_RBP || rule->cfa_kind == MT_CFA_AT_RBP;
    u64 address = (is_rbp ? thread->frame_pointer : thread->stack_pointer) + (s64)rule->cfa_offset;
    if (is_rbp) note_frame_pointer(thread);
    *cfa = address;
    if (rule->cfa_kind == MT_CFA_RSP || rule->cfa_kind == MT_CFA_RBP) return true;
    note_word(thread, address);
    if (!read_stack_word(thread, address, cfa)) return false;
    *cfa += (s64)rule->cfa_addend;
    return true;
}

/* A rule that is too long for 15 bits. */
__noinline int walk_by_dictionary(struct thread* thread, u32 index) {
    if (!thread) return 1;
    u32 found = find_code_mapping(thread, thread->pc);
    if (!found || found == MAPPINGS_ARE_BUSY) return stop_walk(thread, MT_SITE_STACK_UNSUPPORTED);
    u32 position = thread->code_mappings[(found - 1) & (CODE_MAPPINGS - 1)].first_rule + index;
    struct mt_unwind_rule* rule = bpf_map_lookup_elem(&unwind_rules, &position);
    u64 cfa, frame_pointer = thread->frame_pointer;
    if (!rule || rule->cfa_kind == MT_CFA_NONE) return stop_walk(thread, MT_SITE_STACK_UNSUPPORTED);
    if (!find_cfa(thread, rule, &cfa)) return stop_walk(thread, MT_SITE_STACK_UNREADABLE);
    if (rule->rbp_kind == MT_RBP_AT_CFA || rule->rbp_kind == MT_RBP_AT_RBP) {
        u64 from = rule->rbp_kind == MT_RBP_AT_CFA ? cfa : thread->frame_pointer;
        if (rule->rbp_kind == MT_RBP_AT_RBP) note_frame_pointer(thread);
        thread->frame_pointer_at = from + (s64)rule->rbp_offset;
        if (!read_stack_word(thread, thread->frame_pointer_at, &frame_pointer))
            return stop_walk(thread, MT_SITE_STACK_UNREADABLE);
    }
    /* An odd value: no step by frame pointer can start from it. */
    if (rule->rbp_kind == MT_RBP_UNKNOWN) {
        frame_pointer = 1;
        thread->frame_pointer_at = FRAME_POINTER_IS_CONSTANT;
    }
    return enter_caller(thread, cfa - 8, cfa, frame_pointer);
}

__noinline int walk_by_special_rule(struct thread* thread, u32 rule) {
    if (!thread) return 1;
    if ((rule & MT_UNWIND_DICTIONARY_BITS) == MT_UNWIND_DICTIONARY)
        return walk_by_dictionary(thread, rule & MT_UNWIND_INDEX_MASK);
    if (rule == MT_UNWIND_STOP) return 1;
    if (rule == MT_UNWIND_GAP) return walk_by_frame_pointer(thread);
    if (rule == MT_UNWIND_SIGNAL) return walk_signal_frame(thread);
    if (rule == MT_UNWIND_PLT11 || rule == MT_UNWIND_PLT10) {
        u32 pushed_from = rule == MT_UNWIND_PLT11 ? 11 : 10;
        u64 cfa = thread->stack_pointer + 8 + ((thread->pc & 15) >= pushed_from ? 8 : 0);
        return enter_caller(thread, cfa - 8, cfa, thread->frame_pointer);
    }
    return stop_walk(thread, MT_SITE_STACK_UNSUPPORTED);
}

static __always_inline long walk_by_plain_rule(struct thread* thread, u32 rule) {
    u64 base = rule & MT_UNWIND_BASE_RBP ? thread->frame_pointer : thread->stack_pointer;
    u64 cfa = base + 8 * (rule & MT_UNWIND_CFA_MASK), frame_pointer = thread->frame_pointer;
    u32 saved = rule >> MT_UNWIND_RBP_SHIFT & MT_UNWIND_RBP_MASK;
    if (rule & MT_UNWIND_BASE_RBP) note_frame_pointer(thread);
    if (saved) {
        thread->frame_pointer_at = cfa - 8 * (saved + 1);
        if (!read_stack_word(thread, thread->frame_pointer_at, &frame_pointer))
            return stop_walk(thread, MT_SITE_STACK_UNREADABLE);
    }
    return enter_caller(thread, cfa - 8, cfa, frame_pointer);
}

/* One frame; not 0: the walk is over. */
static __always_inline long walk_frame_of(struct thread* thread) {
    u32 rule = find_rule(thread);
    if (rule == RULE_NOT_KNOWN) return stop_walk(thread, MT_SITE_STACK_SENT_RAW);
    add_place(thread);
    if (rule & MT_UNWIND_SPECIAL) return walk_by_special_rule(thread, rule);
    return walk_by_plain_rule(thread, rule);
}

static long walk_frame(u32 index, struct thread** context) {
    /* A global function may return anything: "At callback return the register R0 has smin=0 smax=4294967295 should have
     * been in [0, 1]". */
    return walk_frame_of(*context) ? 1 : 0;
}

static __always_inline void forget_stale_code(struct thread* thread) {
    const struct mt_owner* owner = find_owner(thread->owner);
    if (!owner || owner->code_generation == thread->code_generation) return;
    thread->code_generation = owner->code_generation;
    for (u32 index = 0; index < CODE_MAPPINGS; index++)
        thread->code_mappings[index].size_bytes = 0;
}

static __always_inline void begin_walk(struct thread* thread, u64 caller, u64 sp, u64 frame) {
    forget_stale_code(thread);
    thread->frame_count = 0;
    thread->walk_flags = 0;
    thread->window_size_bytes = 0;
    thread->hash[0] = thread->hash[1] = 0;
    thread->pc = caller - 1;
    thread->is_interrupted = 0;
    thread->stack_pointer = sp;
    thread->frame_pointer = frame;
    thread->trampoline = return_trampoline();
    thread->walk_start = sp;
    thread->frame_pointer_at = FRAME_POINTER_OF_START;
    thread->needs_frame_pointer = 0;
    thread->noted_words = 0;
}

/* Fills thread->frames: `caller`, then its callers up to where the thread started. `sp` and `frame` are the registers
 * in the caller, behind the call. */
__noinline int walk_stack(struct thread* thread, u64 caller, u64 sp, u64 frame) {
    if (!thread) return 0;
    begin_walk(thread, caller, sp, frame);
    add_frame(thread, caller);
    bpf_loop(MT_MAX_FRAMES, walk_frame, &thread, 0);
    return 0;
}

/* ... from the instruction before which the thread stands, as in a system call; that is the first frame. */
__noinline int walk_interrupted_stack(struct thread* thread, u64 pc, u64 sp, u64 frame) {
    if (!thread) return 0;
    begin_walk(thread, pc + 1, sp, frame);
    thread->is_interrupted = 1;
    add_frame(thread, pc);
    bpf_loop(MT_MAX_FRAMES, walk_frame, &thread, 0);
    return 0;
}

struct descent {
    struct thread* thread;
    u64 stack_pointer;
    bool is_undecided;
};

static long walk_down_to(u32 index, struct descent* descent) {
    struct thread* thread = descent->thread;
    if (thread->stack_pointer >= descent->stack_pointer) return 1;
    u32 rule = find_rule(thread);
    if (rule == RULE_NOT_KNOWN || rule == MT_UNWIND_GAP || rule == MT_UNWIND_STOP) {
        descent->is_undecided = true;
        return 1;
    }
    if (rule & MT_UNWIND_SPECIAL) return walk_by_special_rule(thread, rule) ? 1 : 0;
    return walk_by_plain_rule(thread, rule) ? 1 : 0;
}

enum descent_result {
    DESCENT_MISSES = 0,
    DESCENT_ARRIVES = 1,
    DESCENT_IS_UNDECIDED = 2, /* CFI does not tell; thread->pc is how far it came */
};

/* Does the code that `caller`, `sp` and `frame` are the registers of return, in the end, through the stack word at
 * `slot`? */
static __always_inline enum descent_result returns_through(struct thread* thread, u64 caller, u64 sp, u64 frame,
                                                           u64 slot) {
    begin_walk(thread, caller, sp, frame);
    struct descent descent = {.thread = thread, .stack_pointer = slot + 8};
    bpf_loop(MT_MAX_FRAMES, walk_down_to, &descent, 0);
    if (descent.is_undecided || thread->walk_flags) return DESCENT_IS_UNDECIDED;
    return thread->stack_pointer == slot + 8 ? DESCENT_ARRIVES : DESCENT_MISSES;
}
