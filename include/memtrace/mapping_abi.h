/* Events of calls that change mappings, as part of the contract of abi.h: plain C that compiles as BPF C, C11 and
 * C++20, append-only. */
#pragma once

#include "memtrace/abi.h"

/* mt_mapping_event.flags. */
enum mt_mapping_flags {
    MT_MAPPING_OF_ALLOCATOR = 1,   /* made inside a call of an allocator's function, and without a call site */
    MT_MAPPING_BY_SYSTEM_CALL = 2, /* by the program's own system call; `caller` is behind its instruction */
};

struct mt_mapping_event {
    struct mt_event header;
    mt_u64 address;
    mt_u64 size_bytes;  /* as the caller gave it, not rounded to pages */
    mt_u64 old_address; /* REMAP_*: the range that mremap was given */
    mt_u64 old_size_bytes;
    mt_u32 site; /* 0: none */
    mt_u32 row;
    mt_u32 protection; /* MAP, PROTECT: PROT_* */
    mt_u32 map_flags;  /* MAP: MAP_*; REMAP*: MREMAP_*; DISCARD: MADV_* */
    mt_u64 caller;     /* return address of the call, or of the system call */
    mt_u32 flags;      /* enum mt_mapping_flags */
    mt_u32 reserved;
};

MT_ASSERT_SIZE(struct mt_mapping_event, 88);
