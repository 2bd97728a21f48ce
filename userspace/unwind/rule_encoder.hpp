// FrameStates to the 16-bit rules of memtrace/unwind_abi.h, with the dictionary of one module. Uses nothing else.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "memtrace/unwind_abi.h"
#include "unwind/frame_state.hpp"

namespace memtrace {

/// Encodes the rules of one module; equal rules get equal numbers. Not thread-safe.
class RuleEncoder {
  public:
    /// `is_signal_frame`: the CFI's augmentation has an 'S'.
    mt_u16 encode(const FrameState& state, bool is_signal_frame);
    const std::vector<mt_unwind_rule>& rules() const { return rules_; }
    /// Calls of encode() that gave MT_UNWIND_UNSUPPORTED because the dictionary was full.
    uint64_t times_full() const { return times_full_; }

  private:
    mt_u16 dictionary_entry(const mt_unwind_rule& rule);

    std::vector<mt_unwind_rule> rules_;
    std::map<std::array<int32_t, 5>, mt_u16> numbers_;
    uint64_t times_full_ = 0;
};

/// Whether `rule` is usable but loses the caller's rbp.
bool loses_rbp(mt_u16 rule, const std::vector<mt_unwind_rule>& rules);

}  // namespace memtrace
