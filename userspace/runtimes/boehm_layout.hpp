// Where libgc (Boehm's collector) keeps its block headers and mark bytes, read out of its own code in the running
// process: the offsets differ between builds, and a stripped libgc names no variable. Uses processes and probes
// (Zydis).
#pragma once

#include <array>
#include <cstdint>

#include "base/result.hpp"
#include "probes/elf_file.hpp"
#include "processes/target_memory.hpp"

namespace memtrace {

/// Addresses are those of the process; offsets are in bytes. Sources: libgc 8.2, include/private/gc_hdrs.h (HDR,
/// struct bi), gc_priv.h (struct hblkhdr), mark.c (GC_is_marked, GC_collection_in_progress), alloc.c (GC_get_gc_no),
/// misc.c (GC_get_total_bytes).
struct BoehmLayout {
    uint64_t top_index = 0;               // bottom_index *[2048], by bits 22 to 32 of an address
    uint64_t bottom_key = 0;              // in a bottom_index: bits 22 and up of the addresses that it is for
    uint64_t bottom_link = 0;             // ... the next one with the same hash
    uint64_t header_block = 0;            // in a header: the block's address
    uint64_t header_kind = 0;             // ... kind (u8): 0 pointer-free, 1 normal
    uint64_t header_flags = 0;            // ... flags (u8)
    uint64_t header_size = 0;             // ... bytes of its objects
    uint64_t header_marks = 0;            // ... mark bytes, one for each 16 bytes of the block
    uint64_t collection_counter = 0;      // GC_gc_no
    std::array<uint64_t, 2> allocated{};  // two counters of bytes; their sum is what was ever allocated
    uint64_t mark_state = 0;              // GC_mark_state (i32): not 0 while a collection marks

    friend bool operator==(const BoehmLayout&, const BoehmLayout&) = default;
};

/// `file` is mapped so that its address v is `bias` + v in the process. Error: its code is not of the form that is
/// known, or its variables are not there yet, because the dynamic linker is still at work.
Result<BoehmLayout> find_boehm_layout(const ElfFile& file, const TargetMemory& memory, uint64_t bias);

}  // namespace memtrace
