// From an ELF file to the places of its probes: which rows of the table it defines, and where each probe goes. Uses the
// other files of this folder. One place of a file gets one probe, however many names it has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "probes/allocator_table.hpp"
#include "probes/elf_file.hpp"
#include "probes/placement.hpp"

namespace memtrace {

enum class PointKind : uint8_t {
    entry,
    return_instruction,  // of functions that may throw; has no row
    unseen_return,       // a jump out of them to where their return is seen otherwise or not; has no row
    go_entry,            // of a function of Go's runtime, which is never return-probed
    go_entry_checked,    // ... on the jump to where its stack grows
    go_return,           // ... at one of its return instructions
};

constexpr bool is_entry(PointKind kind) {
    return kind == PointKind::entry || kind == PointKind::go_entry || kind == PointKind::go_entry_checked;
}

struct ProbePoint {
    PointKind kind = PointKind::entry;
    uint32_t row = 0;  // in the AllocatorTable
    std::string symbol;
    uint64_t symbol_vaddr = 0;
    uint64_t file_offset = 0;    // of the probe itself, not of the function
    uint64_t function_size = 0;  // bytes; 0 if the file does not say
    Placement placement;
};

/// A row's function that the file defines and that cannot carry a probe.
struct SkippedFunction {
    std::string symbol;
    std::string reason;
};

/// What one look at a file finds.
struct ProbePoints {
    std::vector<ProbePoint> points;        // entries first, in the order of the table
    std::vector<SkippedFunction> skipped;  // their calls will not be seen
    FileAllocator allocator;
};

/// The file's probe points; none if it defines no row. Aliases at one address give one point, of the user's row, else
/// of the row that comes first. `debug_file`, which may be null, is the file's separate debug file: its symbols are
/// looked at too. An Error only if the file's symbols cannot be read.
Result<ProbePoints> find_probe_points(const ElfFile& file, const AllocatorTable& table,
                                      const ElfFile* debug_file = nullptr);

}  // namespace memtrace
