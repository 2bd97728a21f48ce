/* The rule by which a frame is unwound. Rules come from the tables that the user side loaded (memtrace/unwind_abi.h),
 * found through the kernel's own list of mappings, so that exec and dlopen find the right table. */
#pragma once

#include "config.h"
#include "events.h"
#include "maps.h"
#include "targets.h"

static __always_inline u64 place_of(u64 module, u64 offset) {
    u64 place = (module ^ offset * 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull;
    return place >> 16;
}

/* A table that has been asked for. */
static const struct mt_unwind_file asked_for = {.state = MT_UNWIND_ASKED_FOR};

static long note_code_mapping(struct task_struct* task, struct vm_area_struct* area, struct thread** thread) {
    struct mapping_search* search = &(*thread)->search;
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

/* Fills thread->search.mapping from the file's table; asks the user side for it when there is none yet. */
static __always_inline void find_table(struct thread* thread, u64 pc) {
    struct mapping_search* search = &thread->search;
    struct code_mapping* mapping = &search->mapping;
    mapping->state = MT_UNWIND_NO_CFI;
    if (search->file.inode == 0) return;
    u64 device = search->file.device & ~MT_UNWIND_EVERY_ADDRESS;
    mapping->module = (search->file.inode * 0x9e3779b97f4a7c15ull ^ device) * 0xff51afd7ed558ccdull | 1;
    mapping->offset_minus_start = search->file_offset - mapping->start;
    /* Linux 6.1 takes no key from there: "R2 type=mem expected=fp, pkt, pkt_meta, map_key, map_value". */
    struct mt_file file = search->file;
    struct mt_unwind_file* table = bpf_map_lookup_elem(&unwind_files, &file);
    if (!table) {
        if (bpf_map_update_elem(&unwind_files, &file, &asked_for, BPF_NOEXIST)) return;
        mapping->state = MT_UNWIND_ASKED_FOR;
        /* Who is not heard asks again: the entry must not outlive the question. */
        if (!emit_file_event(thread->owner, &file, pc)) bpf_map_delete_elem(&unwind_files, &file);
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

/* Another thread is changing the mappings for a moment (linux/errno.h). */
#define EBUSY 16
#define TRIES_TO_LOOK 4
#define MAPPINGS_ARE_BUSY 0xffu

/* The mapping of code at `pc`, from the thread's few or from the kernel: its index + 1, 0 if there is none, or
 * MAPPINGS_ARE_BUSY. */
__noinline u32 find_code_mapping(struct thread* thread, u64 pc) {
    if (!thread) return 0;
    for (u32 index = 0; index < CODE_MAPPINGS; index++) {
        const struct code_mapping* known = &thread->code_mappings[index];
        if (pc - known->start < known->size_bytes && known->has_every_address == thread->is_interrupted)
            return index + 1;
    }
    thread->search = (struct mapping_search){.mapping.has_every_address = thread->is_interrupted};
    long error = bpf_find_vma(bpf_get_current_task_btf(), pc, note_code_mapping, &thread, 0);
    for (u32 try = 1; try < TRIES_TO_LOOK && error == -EBUSY; try++)
        error = bpf_find_vma(bpf_get_current_task_btf(), pc, note_code_mapping, &thread, 0);
    if (error) return error == -EBUSY ? MAPPINGS_ARE_BUSY : 0;
    find_table(thread, pc);
    u32 index = thread->next_code_mapping++ & (CODE_MAPPINGS - 1);
    thread->code_mappings[index] = thread->search.mapping;
    /* What was asked for may be there for the next stack. */
    if (thread->search.mapping.state == MT_UNWIND_ASKED_FOR) thread->code_mappings[index].size_bytes = 0;
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

/* The rule at thread->pc, RULE_NOT_KNOWN when the table is not there yet or cannot be found now; sets thread->place. */
__noinline u32 find_rule(struct thread* thread) {
    if (!thread) return RULE_NOT_KNOWN;
    u64 pc = thread->pc;
    u32 owner = thread->owner;
    struct pc_cache* cache = bpf_map_lookup_elem(&pc_caches, &owner);
    u32 slot = (u32)((pc * 0x9e3779b97f4a7c15ull) >> 52) & (MT_PC_CACHE_ENTRIES - 1);
    if (thread->is_interrupted) cache = 0;
    if (cache) {
        u64 word = cache->entries[slot].rule, place = cache->entries[slot].place;
        thread->place = place >> 16;
        if (word >> 16 == pc && (u16)place == (u16)pc) return word & 0xffff;
    }
    thread->place = place_of(0, pc);
    u32 found = find_code_mapping(thread, pc);
    if (!found) return MT_UNWIND_GAP;
    if (found == MAPPINGS_ARE_BUSY) return RULE_NOT_KNOWN;
    const struct code_mapping* mapping = &thread->code_mappings[(found - 1) & (CODE_MAPPINGS - 1)];
    if (mapping->state == MT_UNWIND_ASKED_FOR) return RULE_NOT_KNOWN;
    thread->place = place_of(mapping->module, pc + mapping->offset_minus_start);
    u32 rule = MT_UNWIND_GAP;
    if (mapping->state == MT_UNWIND_READY) rule = search_rule(mapping, pc + mapping->vaddr_minus_start);
    if (rule == MT_UNWIND_GAP && is_signal_return(pc + 1)) rule = MT_UNWIND_SIGNAL;
    if (cache) {
        cache->entries[slot].place = thread->place << 16 | (u16)pc;
        cache->entries[slot].rule = pc << 16 | rule;
    }
    return rule;
}
