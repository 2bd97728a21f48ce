// The DWARF expressions that real call-frame information uses for rbp and the CFA, recognized by their bytes. Pure.
#pragma once

#include <dwarf.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "unwind/byte_reader.hpp"
#include "unwind/frame_state.hpp"

namespace memtrace {

/// The expression that GNU ld and lld write for a procedure linkage table (bfd/elfxx-x86.c): an entry that has pushed
/// its index, from byte `threshold` on, has one word more on the stack.
constexpr std::array<uint8_t, 11> plt_expression(uint8_t threshold) {
    return {DW_OP_breg7,
            8,
            DW_OP_breg16,
            0,
            DW_OP_lit15,
            DW_OP_and,
            static_cast<uint8_t>(DW_OP_lit0 + threshold),
            DW_OP_ge,
            DW_OP_lit3,
            DW_OP_shl,
            DW_OP_plus};
}

/// The CFA by `expression`: a PLT's, or `*(register + offset) [+ addend]`.
inline CfaRule cfa_of_expression(std::span<const uint8_t> expression) {
    constexpr auto plt11 = plt_expression(11);
    constexpr auto plt10 = plt_expression(10);
    if (std::ranges::equal(expression, plt11)) return {CfaRule::Kind::plt11};
    if (std::ranges::equal(expression, plt10)) return {CfaRule::Kind::plt10};
    ByteReader reader(expression);
    const uint8_t base = reader.byte();
    if (base != DW_OP_breg6 && base != DW_OP_breg7) return {CfaRule::Kind::other};
    CfaRule rule{base == DW_OP_breg6 ? CfaRule::Kind::at_rbp : CfaRule::Kind::at_rsp};
    rule.offset = reader.sleb();
    if (reader.byte() != DW_OP_deref) return {CfaRule::Kind::other};
    if (reader.at_end() && !reader.has_failed()) return rule;
    if (reader.byte() != DW_OP_plus_uconst) return {CfaRule::Kind::other};
    rule.addend = static_cast<int64_t>(reader.uleb());
    if (reader.has_failed() || !reader.at_end()) return {CfaRule::Kind::other};
    return rule;
}

/// Where a register is saved by `expression`: `rbp + offset`.
inline RegisterRule place_of_expression(std::span<const uint8_t> expression) {
    ByteReader reader(expression);
    if (reader.byte() != DW_OP_breg6) return {RegisterRule::Kind::other};
    const int64_t offset = reader.sleb();
    if (reader.has_failed() || !reader.at_end()) return {RegisterRule::Kind::other};
    return {RegisterRule::Kind::at_rbp, offset};
}

}  // namespace memtrace
