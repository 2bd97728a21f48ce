// Address → source frames, of one file's debug information. In place of libdw's own look-up (dwarf_getscopes), which
// reads a whole unit for each address and needs .debug_aranges. Uses libdw.
#pragma once

#include <elfutils/libdw.h>

#include <cstdint>
#include <vector>

#include "symbols/debug_unit.hpp"
#include "symbols/range_map.hpp"

namespace memtrace {

/// Reads what it is asked for and keeps it; DWARF 2 to 5. Debug information that is damaged gives fewer names. For one
/// thread.
class InlineIndex {
  public:
    /// Reads the ranges of all units, nothing else. `dwarf` must outlive the index.
    explicit InlineIndex(Dwarf* dwarf);

    /// The frames of the code at `address` (as the file counts it), innermost first. The last is that of the function
    /// itself, all before it were inlined. Empty where no unit holds the address.
    std::vector<SourceFrame> frames_at(uint64_t address);

  private:
    DebugUnit* unit_at(uint64_t address);

    Dwarf* dwarf_;
    WalkState state_;
    std::vector<DebugUnit> units_;
    std::vector<Dwarf_Off> offsets_;  // of the units' entries, ascending
    RangeMap unit_ranges_;
};

}  // namespace memtrace
