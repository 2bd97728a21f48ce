// Call-frame information of one ELF file as the compact table that the kernel side walks stacks with; what rows and
// rules mean is in memtrace/unwind_abi.h. Uses base, libelf and libdw. Files and their CFI are hostile: they are read
// with bounded memory and time, never mapped, and what is wrong in them is counted and becomes "no CFI".
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "memtrace/unwind_abi.h"

namespace memtrace {

/// Which rows a table keeps.
enum class UnwindRows {
    all,         ///< the rule of every address is exact
    call_sites,  ///< exact for (return address - 1) of every call instruction; 2 to 15 % of the rows
};

/// What was read and what could not be said, of one table. Rows are counted before equal neighbours are merged.
struct UnwindCounts {
    uint64_t functions = 0;            ///< FDEs that the table was made from
    uint64_t functions_malformed = 0;  ///< FDEs left out or cut short, "no CFI" instead
    uint64_t functions_outside = 0;    ///< FDEs of no executable segment: sections that the linker dropped
    uint64_t rows = 0;
    uint64_t rows_unsupported = 0;  ///< CFA by another register or expression, return address elsewhere
    uint64_t rows_rbp_unknown = 0;  ///< usable, but the caller's rbp is lost
    uint64_t rules_full = 0;        ///< rows made unsupported because the dictionary was full
};

/// Rows, page index and dictionary of one file, by virtual address of the file. Immutable once built, so thread-safe.
struct UnwindTable {
    uint64_t first_page_vaddr = 0;  ///< a multiple of 4096
    std::vector<uint32_t> rows;
    std::vector<uint32_t> page_index;   ///< empty when the file has no CFI, else pages + 1 entries
    std::vector<mt_unwind_rule> rules;  ///< the dictionary
    uint64_t text_bytes = 0;            ///< executable bytes of the file
    UnwindCounts counts;

    /// The rule of `vaddr`, MT_UNWIND_GAP outside the table: the same search as the kernel side's.
    mt_u16 rule_at(uint64_t vaddr) const;
    /// What the table takes in the kernel.
    uint64_t size_bytes() const;
};

/// The table of the x86-64 ELF file `fd`, from its .eh_frame, where that has nothing from its .debug_frame, and where
/// that has nothing from the .debug_frame of `debug_fd`, a separate debug file of the same build, or -1. Both stay the
/// caller's; their file positions are not used. A file without CFI gives an empty table; an Error is a file that is not
/// an x86-64 ELF file or cannot be read. The .debug_frame of a Go program is not used: it is wrong where the runtime
/// switches stacks, and Go code keeps frame pointers.
Result<UnwindTable> build_unwind_table(int fd, int debug_fd, UnwindRows rows);
/// The same of an ELF image in memory, as the vDSO is: `image` is laid out as a file.
Result<UnwindTable> build_unwind_table(std::span<const uint8_t> image, UnwindRows rows);

}  // namespace memtrace
