// From an ELF file to the places of its probes: which rows of the table it defines, and where each probe goes. Uses the
// other files of this folder. One place of a file gets one probe, however many names it has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "probes/elf_file.hpp"
#include "probes/placement.hpp"

namespace memtrace {

struct ProbePoint {
    uint32_t row = 0;  // in allocator_table()
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

/// The file's probe points in the order of the table; empty if it defines no row. Aliases at one address give one
/// point, of the row that comes first. An Error only if the file's symbols cannot be read.
Result<std::vector<ProbePoint>> find_probe_points(const ElfFile& file);

/// What find_probe_points leaves out, for `list` and warnings.
Result<std::vector<SkippedFunction>> find_skipped_functions(const ElfFile& file);

}  // namespace memtrace
