// The functions (FDEs) of one frame section and their rows. Uses libdw to split the section into entries.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "unwind/cfa_interpreter.hpp"
#include "unwind/elf_image.hpp"
#include "unwind/rule_encoder.hpp"
#include "unwind/unwind_table.hpp"

namespace memtrace {

/// From `offset` (bytes from the lowest executable segment's page) to the next row `rule` holds.
struct UnwindRow {
    uint32_t offset = 0;
    mt_u16 rule = MT_UNWIND_GAP;
};

/// The rows of one FDE, clipped to the segment that holds it: rows [first_row, first_row + row_count) of FrameRows.
/// There is at least one, the first at `start`.
struct FrameFunction {
    uint32_t start = 0;  ///< as UnwindRow.offset
    uint32_t end = 0;
    uint32_t first_row = 0;
    uint32_t row_count = 0;
};

enum class FrameSectionKind { eh_frame, debug_frame };

/// Collects functions over the sections of a file. Not thread-safe.
class FrameRows {
  public:
    /// `code` gives the executable segments; addresses become offsets from `base_vaddr`.
    FrameRows(const ElfImage& code, uint64_t base_vaddr) : code_(code), base_vaddr_(base_vaddr) {}

    /// The functions of a section, in its order. What is wrong in it is counted and left out.
    std::vector<FrameFunction> read(const FrameSection& section, FrameSectionKind kind);

    const std::vector<UnwindRow>& rows() const { return rows_; }
    const RuleEncoder& encoder() const { return encoder_; }
    /// All but UnwindCounts.rules_full.
    const UnwindCounts& counts() const { return counts_; }

  private:
    class Reader;

    const ElfImage& code_;
    uint64_t base_vaddr_;
    std::vector<UnwindRow> rows_;
    RuleEncoder encoder_;
    UnwindCounts counts_;
};

}  // namespace memtrace
