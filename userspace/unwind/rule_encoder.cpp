#include "unwind/rule_encoder.hpp"

#include <limits>
#include <optional>

namespace memtrace {
namespace {

constexpr int64_t word_bytes = 8;
// Where Linux's rt_sigframe holds the interrupted rsp, from its return address's place
// (arch/x86/include/asm/sigframe.h).
constexpr int64_t signal_frame_rsp_offset = 160;

bool fits_s32(int64_t value) {
    return value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max();
}

/// The plain rule, if bits can say it.
std::optional<mt_u16> plain_rule(const FrameState& state) {
    const CfaRule& cfa = state.cfa;
    if (cfa.kind != CfaRule::Kind::offset || cfa.offset < 0 || cfa.offset % word_bytes != 0) return std::nullopt;
    const int64_t cfa_words = cfa.offset / word_bytes;
    if (cfa_words > MT_UNWIND_CFA_MASK) return std::nullopt;
    const int64_t base = cfa.register_number == dwarf_rbp ? MT_UNWIND_BASE_RBP : 0;
    if (state.rbp.kind == RegisterRule::Kind::same) return static_cast<mt_u16>(base | cfa_words);
    if (state.rbp.kind != RegisterRule::Kind::at_cfa || state.rbp.offset % word_bytes != 0) return std::nullopt;
    const int64_t slot = -(state.rbp.offset / word_bytes) - 1;
    if (slot < 1 || slot > MT_UNWIND_RBP_MASK) return std::nullopt;
    return static_cast<mt_u16>(base | slot << MT_UNWIND_RBP_SHIFT | cfa_words);
}

mt_u8 cfa_kind(const CfaRule& cfa) {
    switch (cfa.kind) {
        case CfaRule::Kind::offset:
            return cfa.register_number == dwarf_rbp ? MT_CFA_RBP : MT_CFA_RSP;
        case CfaRule::Kind::at_rsp:
            return MT_CFA_AT_RSP;
        case CfaRule::Kind::at_rbp:
            return MT_CFA_AT_RBP;
        default:
            return MT_CFA_NONE;
    }
}

mt_u8 rbp_kind(const RegisterRule& rbp) {
    if (!fits_s32(rbp.offset)) return MT_RBP_UNKNOWN;
    switch (rbp.kind) {
        case RegisterRule::Kind::same:
            return MT_RBP_SAME;
        case RegisterRule::Kind::at_cfa:
            return MT_RBP_AT_CFA;
        case RegisterRule::Kind::at_rbp:
            return MT_RBP_AT_RBP;
        default:
            return MT_RBP_UNKNOWN;
    }
}

bool is_supported(const FrameState& state) {
    const CfaRule& cfa = state.cfa;
    if (state.return_address.kind != RegisterRule::Kind::at_cfa || state.return_address.offset != -word_bytes)
        return false;
    if (cfa.kind == CfaRule::Kind::offset && cfa.register_number != dwarf_rsp && cfa.register_number != dwarf_rbp)
        return false;
    return fits_s32(cfa.offset) && fits_s32(cfa.addend);
}

}  // namespace

mt_u16 RuleEncoder::encode(const FrameState& state, bool is_signal_frame) {
    const CfaRule& cfa = state.cfa;
    // A frame may be marked 'S' just so that its pc is not taken for a return address: then its own rule holds.
    if (is_signal_frame && cfa.kind == CfaRule::Kind::at_rsp && cfa.offset == signal_frame_rsp_offset &&
        cfa.addend == 0)
        return MT_UNWIND_SIGNAL;
    if (state.return_address.kind == RegisterRule::Kind::undefined) return MT_UNWIND_STOP;
    if (!is_supported(state)) return MT_UNWIND_UNSUPPORTED;
    if (const std::optional<mt_u16> plain = plain_rule(state)) return *plain;
    const bool is_rbp_same = state.rbp.kind == RegisterRule::Kind::same;
    if (cfa.kind == CfaRule::Kind::plt11 && is_rbp_same) return MT_UNWIND_PLT11;
    if (cfa.kind == CfaRule::Kind::plt10 && is_rbp_same) return MT_UNWIND_PLT10;
    mt_unwind_rule rule{};
    rule.cfa_kind = cfa_kind(cfa);
    if (rule.cfa_kind == MT_CFA_NONE) return MT_UNWIND_UNSUPPORTED;
    rule.rbp_kind = rbp_kind(state.rbp);
    rule.cfa_offset = static_cast<mt_s32>(cfa.offset);
    rule.cfa_addend = static_cast<mt_s32>(cfa.addend);
    if (rule.rbp_kind == MT_RBP_AT_CFA || rule.rbp_kind == MT_RBP_AT_RBP)
        rule.rbp_offset = static_cast<mt_s32>(state.rbp.offset);
    return dictionary_entry(rule);
}

mt_u16 RuleEncoder::dictionary_entry(const mt_unwind_rule& rule) {
    const std::array<int32_t, 5> key = {rule.cfa_kind, rule.rbp_kind, rule.cfa_offset, rule.cfa_addend,
                                        rule.rbp_offset};
    if (const auto known = numbers_.find(key); known != numbers_.end()) return known->second;
    if (rules_.size() == MT_UNWIND_MAX_RULES) {
        ++times_full_;
        return MT_UNWIND_UNSUPPORTED;
    }
    const auto number = static_cast<mt_u16>(MT_UNWIND_DICTIONARY | rules_.size());
    rules_.push_back(rule);
    numbers_.emplace(key, number);
    return number;
}

bool loses_rbp(mt_u16 rule, const std::vector<mt_unwind_rule>& rules) {
    if ((rule & MT_UNWIND_DICTIONARY_BITS) != MT_UNWIND_DICTIONARY) return false;
    return rules[rule & MT_UNWIND_INDEX_MASK].rbp_kind == MT_RBP_UNKNOWN;
}

}  // namespace memtrace
