/* Walks a user stack: by call-frame information, and by frame pointer only where an address has none. Rules come from
 * the tables that the user side loaded (memtrace/unwind_abi.h), found through the kernel's own list of mappings, so
 * that neither exec nor dlopen leaves a moment in which the wrong table is used. */
#pragma once

#include "arguments.h"
#include "config.h"
#include "events.h"
#include "maps.h"
#include "targets.h"

/* Farther up than this a saved frame pointer is data, not a frame. */
#define FRAME_MAX_BYTES (1ull << 20)
#define LOWEST_CODE_ADDRESS 0x1000
/* struct rt_sigframe of x86-64 above its return address: ucontext at 0, registers at 40 (arch/x86/include/uapi/asm). */
#define SIGNAL_FRAME_RBP 120
#define SIGNAL_FRAME_RSP 160
#define SIGNAL_FRAME_RIP 168
/* A string of 64 MB is measured whole. */
#define MAX_STRING_PAGES (16 << 10)
/* Return probes pending on one thread that are looked through for the address behind a trampoline. */
#define MAX_RETURN_INSTANCES 64

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

static __always_inline u64 place_of(u64 module, u64 offset) {
    u64 place = (module ^ offset * 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull;
    return place >> 16;
}

/* A word of the user stack, through a window that ends with the page: a page that is present never makes the copy fail.
 */
static __always_inline bool read_stack_word(struct thread* thread, u64 address, u64* word) {
    u64 offset = address - thread->window_start;
    if (offset >= thread->window_size_bytes) {
        u32 size_bytes = WINDOW_BYTES - ((u32)address & (WINDOW_BYTES - 1));
        thread->window_start = address;
        thread->window_size_bytes = 0;
        /* The mask keeps the verifier's bound: "R2 unbounded memory access". */
        if (bpf_probe_read_user(thread->window, ((size_bytes - 1) & (WINDOW_BYTES - 1)) + 1, (const void*)address))
            return false;
        thread->window_size_bytes = size_bytes;
        offset = 0;
    }
    *word = thread->window[(offset / 8) & (WINDOW_BYTES / 8 - 1)];
    return true;
}

struct string_measure {
    struct thread* thread;
    u64 address;
    u64 bytes;
};

static long measure_string(u32 index, struct string_measure* measure) {
    u32 size_bytes = WINDOW_BYTES - ((u32)measure->address & (WINDOW_BYTES - 1));
    size_bytes = ((size_bytes - 1) & (WINDOW_BYTES - 1)) + 1;
    long copied = bpf_probe_read_user_str(measure->thread->window, size_bytes, (const void*)measure->address);
    if (copied <= 0) return 1;
    measure->bytes += copied;
    if (copied < size_bytes) return 1;
    /* The last byte of a part that did not end is put to 0 all the same. */
    char last = 1;
    bpf_probe_read_user(&last, 1, (const void*)(measure->address + size_bytes - 1));
    measure->address += size_bytes;
    return last ? 0 : 1;
}

/* Bytes of the string at `address` with its 0; of a very long one, or where it cannot be read, up to there. */
__noinline u64 string_bytes(struct thread* thread, u64 address) {
    if (!thread) return 0;
    thread->window_size_bytes = 0;
    struct string_measure measure = {.thread = thread, .address = address};
    bpf_loop(MAX_STRING_PAGES, measure_string, &measure, 0);
    return measure.bytes;
}

struct mapping_search {
    struct code_mapping mapping;
    struct mt_file file;
    u64 file_offset; /* of mapping.start */
};

static long note_code_mapping(struct task_struct* task, struct vm_area_struct* area, struct mapping_search* search) {
    search->mapping.start = area->vm_start;
    search->mapping.size_bytes = area->vm_end - area->vm_start;
    search->file_offset = area->vm_pgoff << 12;
    struct file* file = area->vm_file;
    if (!file) {
        if (area->vm_start != (u64)task->mm->context.vdso) return 0;
        search->file.device = MT_UNWIND_VDSO;
        search->file.inode = 1;
        return 0;
    }
    struct inode* inode = file->f_inode;
    search->file.inode = inode->i_ino;
    search->file.device = inode->i_sb->s_dev;
    if (search->mapping.has_every_address) search->file.device |= MT_UNWIND_EVERY_ADDRESS;
    return 0;
}

/* Fills `search->mapping` from the file's table; asks the user side for it when there is none yet. */
static __always_inline void find_table(struct thread* thread, struct mapping_search* search, u64 pc) {
    struct code_mapping* mapping = &search->mapping;
    mapping->state = MT_UNWIND_NO_CFI;
    if (search->file.inode == 0) return;
    u64 device = search->file.device & ~MT_UNWIND_EVERY_ADDRESS;
    mapping->module = (search->file.inode * 0x9e3779b97f4a7c15ull ^ device) * 0xff51afd7ed558ccdull | 1;
    mapping->offset_minus_start = search->file_offset - mapping->start;
    struct mt_unwind_file* table = bpf_map_lookup_elem(&unwind_files, &search->file);
    if (!table) {
        struct mt_unwind_file asked = {.state = MT_UNWIND_ASKED_FOR};
        if (bpf_map_update_elem(&unwind_files, &search->file, &asked, BPF_NOEXIST)) return;
        mapping->state = MT_UNWIND_ASKED_FOR;
        /* Who is not heard asks again: the entry must not outlive the question. */
        if (!emit_file_event(thread->owner, &search->file, pc)) bpf_map_delete_elem(&unwind_files, &search->file);
        return;
    }
    mapping->state = table->state;
    mapping->first_page = table->first_page;
    mapping->page_count = table->page_count;
    mapping->first_rule = table->first_rule;
    mapping->first_page_vaddr = table->first_page_vaddr;
    for (u32 index = 0; index < MT_UNWIND_SEGMENTS; index++) {
        struct mt_unwind_segment segment = table->segments[index];
        u64 offset = pc - mapping->start + search->file_offset - segment.file_offset;
        if (offset < segment.size_bytes)
            mapping->vaddr_minus_start = segment.vaddr + search->file_offset - segment.file_offset - mapping->start;
    }
}

/* The mapping of code at `pc`, from the thread's few or from the kernel; its index + 1, or 0 if there is none. */
__noinline u32 find_code_mapping(struct thread* thread, u64 pc) {
    if (!thread) return 0;
    for (u32 index = 0; index < CODE_MAPPINGS; index++) {
        const struct code_mapping* known = &thread->code_mappings[index];
        if (pc - known->start < known->size_bytes && known->has_every_address == thread->is_interrupted)
            return index + 1;
    }
    struct mapping_search search = {.mapping.has_every_address = thread->is_interrupted};
    if (bpf_find_vma(bpf_get_current_task_btf(), pc, note_code_mapping, &search, 0)) return 0;
    find_table(thread, &search, pc);
    u32 index = thread->next_code_mapping++ & (CODE_MAPPINGS - 1);
    thread->code_mappings[index] = search.mapping;
    /* What was asked for may be there for the next stack. */
    if (search.mapping.state == MT_UNWIND_ASKED_FOR) thread->code_mappings[index].size_bytes = 0;
    return index + 1;
}

/* Half of an element: two words share one. */
static __always_inline bool read_word_at(void* map, u32 index, u32* word) {
    u32 element = index / 2;
    u64* pair = bpf_map_lookup_elem(map, &element);
    if (!pair) return false;
    *word = (u32)(*pair >> (index & 1) * 32);
    return true;
}

/* The rule of address `vaddr` of a file: the search that memtrace/unwind_abi.h describes. */
static __always_inline u32 search_rule(const struct code_mapping* mapping, u64 vaddr) {
    u64 page = (vaddr - mapping->first_page_vaddr) >> MT_UNWIND_PAGE_SHIFT;
    if (page + 1 >= mapping->page_count) return MT_UNWIND_GAP;
    u32 from = mapping->first_page + (u32)page, low, high, row;
    if (!read_word_at(&unwind_pages, from, &low) || !read_word_at(&unwind_pages, from + 1, &high)) return MT_UNWIND_GAP;
    /* A page has at most 4096 rows. */
    for (u32 step = 0; step < 13; step++) {
        if (low >= high) break;
        u32 middle = (low + high) / 2;
        if (!read_word_at(&unwind_rows, middle, &row)) return MT_UNWIND_GAP;
        /* 1 when the row is not behind the address. Computed, since a branch doubles what the verifier has to follow,
         * each time; and hidden from clang, which would make one of it. */
        u64 is_not_behind = ((u64)(u16)row - (u16)vaddr - 1) >> 63;
        asm volatile("" : "+r"(is_not_behind));
        low += (middle + 1 - low) * (u32)is_not_behind;
        high -= (high - middle) * (1 - (u32)is_not_behind);
    }
    if (!read_word_at(&unwind_rows, low - 1, &row)) return MT_UNWIND_GAP;
    return row >> 16;
}

/* What a signal handler returns to in C libraries that have no CFI there, as musl: mov $15 (rt_sigreturn), %rax and
 * syscall. */
__noinline int is_signal_return(u64 pc) {
    struct {
        u64 move;
        u64 system_call;
    } code = {};
    if (bpf_probe_read_user(&code, 9, (const void*)pc)) return false;
    return code.move == 0x0f0000000fc0c748ull && code.system_call == 0x05;
}

#define RULE_NOT_KNOWN 0xffffffffu

/* The rule at thread->pc, RULE_NOT_KNOWN when the table is not there yet; sets thread->place. */
__noinline u32 find_rule(struct thread* thread) {
    if (!thread) return RULE_NOT_KNOWN;
    u64 pc = thread->pc;
    u32 owner = thread->owner;
    struct pc_cache* cache = bpf_map_lookup_elem(&pc_caches, &owner);
    u32 slot = (u32)((pc * 0x9e3779b97f4a7c15ull) >> 52) & (MT_PC_CACHE_WORDS - 1);
    if (thread->is_interrupted) cache = 0;
    if (cache) {
        u64 word = cache->words[slot], place = cache->places[slot];
        thread->place = place >> 16;
        if (word >> 16 == pc && (u16)place == (u16)pc) return word & 0xffff;
    }
    thread->place = place_of(0, pc);
    u32 found = find_code_mapping(thread, pc);
    if (!found) return MT_UNWIND_GAP;
    const struct code_mapping* mapping = &thread->code_mappings[(found - 1) & (CODE_MAPPINGS - 1)];
    if (mapping->state == MT_UNWIND_ASKED_FOR) return RULE_NOT_KNOWN;
    thread->place = place_of(mapping->module, pc + mapping->offset_minus_start);
    u32 rule = MT_UNWIND_GAP;
    if (mapping->state == MT_UNWIND_READY) rule = search_rule(mapping, pc + mapping->vaddr_minus_start);
    if (rule == MT_UNWIND_GAP && is_signal_return(pc + 1)) rule = MT_UNWIND_SIGNAL;
    if (cache) {
        cache->places[slot] = thread->place << 16 | (u16)pc;
        cache->words[slot] = pc << 16 | rule;
    }
    return rule;
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
    if (return_address == thread->trampoline && return_address)
        return_address = address_behind_trampoline(return_address, slot);
    if (return_address < LOWEST_CODE_ADDRESS) return 1;
    if (cfa <= thread->stack_pointer) return stop_walk(thread, MT_SITE_STACK_NO_PROGRESS);
    if (thread->frame_count >= max_stack) return stop_walk(thread, MT_SITE_STACK_TRUNCATED);
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
    if (!thread || (frame & 7) || !read_stack_word(thread, frame + 8, &return_address) || !follows_call(return_address))
        return false;
    /* The stack that is left says nothing about the order on this one. */
    thread->stack_pointer = frame;
    return true;
}

/* A step where there is no CFI. The frame pointer of code that keeps none is data: then this is where the walk ends. */
__noinline int walk_by_frame_pointer(struct thread* thread) {
    if (!thread) return 1;
    u64 frame = thread->frame_pointer, caller_frame;
    /* A thread starts with rbp 0 (System V AMD64 ABI, 3.4.1). */
    if (frame == 0) return 1;
    bool is_frame = !(frame & 7) && frame >= thread->stack_pointer && frame - thread->stack_pointer <= FRAME_MAX_BYTES;
    if (!is_frame) is_frame = is_frame_of_other_stack(thread, frame);
    if (!is_frame || !read_stack_word(thread, frame, &caller_frame)) return stop_walk(thread, MT_SITE_STACK_NO_CFI);
    return enter_caller(thread, frame + 8, frame + 16, caller_frame);
}

__noinline int walk_signal_frame(struct thread* thread) {
    if (!thread) return 1;
    u64 sp = thread->stack_pointer, interrupted_sp, interrupted_pc, frame_pointer;
    if (!read_word(sp + SIGNAL_FRAME_RBP, &frame_pointer) || !read_word(sp + SIGNAL_FRAME_RSP, &interrupted_sp) ||
        !read_word(sp + SIGNAL_FRAME_RIP, &interrupted_pc))
        return stop_walk(thread, MT_SITE_STACK_UNREADABLE);
    if (thread->frame_count >= max_stack) return stop_walk(thread, MT_SITE_STACK_TRUNCATED);
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
    *cfa = address;
    if (rule->cfa_kind == MT_CFA_RSP || rule->cfa_kind == MT_CFA_RBP) return true;
    if (!read_stack_word(thread, address, cfa)) return false;
    *cfa += (s64)rule->cfa_addend;
    return true;
}

/* A rule that is too long for 15 bits. */
__noinline int walk_by_dictionary(struct thread* thread, u32 index) {
    if (!thread) return 1;
    u32 found = find_code_mapping(thread, thread->pc);
    if (!found) return stop_walk(thread, MT_SITE_STACK_UNSUPPORTED);
    u32 position = thread->code_mappings[(found - 1) & (CODE_MAPPINGS - 1)].first_rule + index;
    struct mt_unwind_rule* rule = bpf_map_lookup_elem(&unwind_rules, &position);
    u64 cfa, frame_pointer = thread->frame_pointer;
    if (!rule || rule->cfa_kind == MT_CFA_NONE) return stop_walk(thread, MT_SITE_STACK_UNSUPPORTED);
    if (!find_cfa(thread, rule, &cfa)) return stop_walk(thread, MT_SITE_STACK_UNREADABLE);
    if (rule->rbp_kind == MT_RBP_AT_CFA || rule->rbp_kind == MT_RBP_AT_RBP) {
        u64 from = rule->rbp_kind == MT_RBP_AT_CFA ? cfa : thread->frame_pointer;
        if (!read_stack_word(thread, from + (s64)rule->rbp_offset, &frame_pointer))
            return stop_walk(thread, MT_SITE_STACK_UNREADABLE);
    }
    /* An odd value: no step by frame pointer can start from it. */
    if (rule->rbp_kind == MT_RBP_UNKNOWN) frame_pointer = 1;
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
    if (saved && !read_stack_word(thread, cfa - 8 * (saved + 1), &frame_pointer))
        return stop_walk(thread, MT_SITE_STACK_UNREADABLE);
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

/* Fills thread->frames: `caller`, then its callers up to where the thread started. `sp` and `frame` are the registers
 * in the caller, behind the call. */
__noinline int walk_stack(struct thread* thread, u64 caller, u64 sp, u64 frame) {
    if (!thread) return 0;
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
    add_frame(thread, caller);
    bpf_loop(MT_MAX_FRAMES, walk_frame, &thread, 0);
    return 0;
}
