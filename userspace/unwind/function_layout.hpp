// Which function's rows hold where: functions of several frame sections laid side by side, the earlier section first.
// Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "unwind/frame_section.hpp"

namespace memtrace {

/// [start, end) takes the rows of `function`, which holds it.
struct FunctionPart {
    uint32_t start = 0;
    uint32_t end = 0;
    FrameFunction function;
};

/// Adds to `parts` (by address, disjoint) what `functions` have and `parts` have not; where two functions overlap, the
/// lower one holds. n log n.
std::vector<FunctionPart> add_functions(std::vector<FunctionPart> parts, std::vector<FrameFunction> functions);

/// The rows of all parts: strictly ascending, equal neighbours merged, MT_UNWIND_GAP between functions that are 16
/// bytes or more apart (less is alignment), after the last, and before the first down to the start of its page.
std::vector<UnwindRow> lay_out(const std::vector<FunctionPart>& parts, const std::vector<UnwindRow>& rows);

}  // namespace memtrace
