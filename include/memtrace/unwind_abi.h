/* How one frame is unwound: the rules of an unwind table, which userspace/unwind builds from call-frame information and
 * bpf/unwind.h applies. x86-64 only. Plain C as abi.h; a rule's meaning is complete here and nowhere else.
 *
 * A table's row is one word: the low 16 bits of the address (of the file, not of the process) from which the rule holds
 * | rule << 16. `page_index[(address >> 12) - first page]` is the index of the first row that lies in that page or a
 * later one, and it has one entry more than there are pages. The rule of an address in page p is that of the last row
 * in [page_index[p], page_index[p + 1]) whose low 16 bits are <= those of the address, else of the row before
 * page_index[p]. Row 0 lies at the start of page 0, so that row exists for every address inside the table; an address
 * outside of it has no CFI, MT_UNWIND_GAP. Look up return address - 1, but an interrupted instruction exactly.
 *
 * CFA is the caller's rsp. The return address is the word at CFA - 8 for every rule but the special ones that say
 * otherwise; callee-saved registers other than rbp are not followed. */
#pragma once

#include "memtrace/abi.h"

#ifndef __bpf__
typedef int32_t mt_s32;
#else
typedef int mt_s32;
#endif

/* A plain rule, bit 15 clear:
 *   bit  14     CFA counts from rbp when set, from rsp when clear
 *   bits 13-10  k: 0 = rbp is the caller's rbp still, else the caller's rbp is the word at CFA - 8 * (k + 1)
 *   bits  9-0   CFA = that register + 8 * these bits
 * A special rule, bit 15 set: one of enum mt_unwind_special, or MT_UNWIND_DICTIONARY | index. */
enum mt_unwind_rule_bits {
    MT_UNWIND_SPECIAL = 0x8000,
    MT_UNWIND_BASE_RBP = 0x4000,
    MT_UNWIND_RBP_SHIFT = 10,
    MT_UNWIND_RBP_MASK = 0xf,
    MT_UNWIND_CFA_MASK = 0x3ff,
    MT_UNWIND_DICTIONARY = 0xc000, /* a rule is one of these when (rule & 0xf000) == MT_UNWIND_DICTIONARY */
    MT_UNWIND_DICTIONARY_BITS = 0xf000,
    MT_UNWIND_INDEX_MASK = 0x0fff, /* index into the module's dictionary of struct mt_unwind_rule */
};

enum mt_unwind_special {
    MT_UNWIND_STOP = 0x8000,   /* the outermost frame: it has no caller */
    MT_UNWIND_GAP = 0x8001,    /* no CFI here: follow the frame pointer */
    MT_UNWIND_PLT11 = 0x8002,  /* CFA = rsp + 8 + ((rip & 15) >= 11 ? 8 : 0); rbp is the caller's */
    MT_UNWIND_PLT10 = 0x8003,  /* CFA = rsp + 8 + ((rip & 15) >= 10 ? 8 : 0); rbp is the caller's */
    MT_UNWIND_SIGNAL = 0x8004, /* struct rt_sigframe at rsp: rbp at rsp + 120, rsp at rsp + 160, rip at rsp + 168; that
                                  rip is an interrupted instruction, not a return address */
    MT_UNWIND_UNSUPPORTED = 0x8005, /* CFI that this format cannot say: the walk ends here */
};

/* Limits of a table. */
enum mt_unwind_limits {
    MT_UNWIND_PAGE_SHIFT = 12,
    MT_UNWIND_MAX_RULES = MT_UNWIND_INDEX_MASK + 1, /* entries of one module's dictionary */
};

/* Kinds of tables, in bits of mt_file.device that no device number of the kernel has (they take 32).
 * A table of call sites is exact for return addresses - 1, which is all that most walks need, and a tenth as large. One
 * of every address is asked for when a signal has interrupted code of the file. */
#define MT_UNWIND_EVERY_ADDRESS (1ull << 32)
/* The one table of the vDSO, of every address; its inode is 1. */
#define MT_UNWIND_VDSO (1ull << 33)

/* mt_unwind_rule.cfa_kind. */
enum mt_unwind_cfa {
    MT_CFA_NONE = 0,
    MT_CFA_RSP = 1,    /* CFA = rsp + cfa_offset */
    MT_CFA_RBP = 2,    /* CFA = rbp + cfa_offset */
    MT_CFA_AT_RSP = 3, /* CFA = word at (rsp + cfa_offset) + cfa_addend */
    MT_CFA_AT_RBP = 4, /* CFA = word at (rbp + cfa_offset) + cfa_addend */
};

/* mt_unwind_rule.rbp_kind: where the caller's rbp is. */
enum mt_unwind_rbp {
    MT_RBP_SAME = 0,    /* in rbp still */
    MT_RBP_AT_CFA = 1,  /* the word at CFA + rbp_offset */
    MT_RBP_AT_RBP = 2,  /* the word at rbp + rbp_offset (this frame's rbp) */
    MT_RBP_UNKNOWN = 3, /* not to be told: the next frame must not use it */
};

/* Entry of a module's dictionary: a rule that 15 bits cannot say. Unused fields are 0. */
struct mt_unwind_rule {
    mt_u8 cfa_kind; /* enum mt_unwind_cfa */
    mt_u8 rbp_kind; /* enum mt_unwind_rbp */
    mt_u16 reserved;
    mt_s32 cfa_offset; /* bytes */
    mt_s32 cfa_addend; /* bytes */
    mt_s32 rbp_offset; /* bytes */
};

MT_ASSERT_SIZE(struct mt_unwind_rule, 16);
