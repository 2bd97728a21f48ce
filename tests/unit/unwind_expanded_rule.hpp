// Rules of unwind tables written out in full, so that rules of two tables, or libdw's, can be compared and shown.
#pragma once

#include <fmt/format.h>

#include <ostream>
#include <string>
#include <tuple>

#include "unwind/unwind_table.hpp"

namespace memtrace::unwind_test {

struct ExpandedRule {
    mt_u16 special = 0;  // of enum mt_unwind_special, or 0: then `rule` says it
    mt_unwind_rule rule{};

    auto fields() const {
        return std::tuple(special, rule.cfa_kind, rule.rbp_kind, rule.cfa_offset, rule.cfa_addend, rule.rbp_offset);
    }
    bool operator==(const ExpandedRule& other) const { return fields() == other.fields(); }
    std::string text() const {
        return fmt::format("special {:#x} cfa kind {} {:+} {:+} rbp kind {} {:+}", special, rule.cfa_kind,
                           rule.cfa_offset, rule.cfa_addend, rule.rbp_kind, rule.rbp_offset);
    }
};

inline std::ostream& operator<<(std::ostream& stream, const ExpandedRule& rule) {
    return stream << rule.text();
}

inline ExpandedRule plain(mt_u8 cfa_kind, mt_s32 cfa_offset, mt_u8 rbp_kind = MT_RBP_SAME, mt_s32 rbp_offset = 0) {
    return {0, {cfa_kind, rbp_kind, 0, cfa_offset, 0, rbp_offset}};
}

inline ExpandedRule special(mt_u16 rule) {
    return {rule, {}};
}

/// Decodes as memtrace/unwind_abi.h says.
inline ExpandedRule expand(const UnwindTable& table, mt_u16 rule) {
    if ((rule & MT_UNWIND_DICTIONARY_BITS) == MT_UNWIND_DICTIONARY)
        return {0, table.rules.at(rule & MT_UNWIND_INDEX_MASK)};
    if ((rule & MT_UNWIND_SPECIAL) != 0) return special(rule);
    const mt_s32 slot = (rule >> MT_UNWIND_RBP_SHIFT) & MT_UNWIND_RBP_MASK;
    const mt_u8 base = (rule & MT_UNWIND_BASE_RBP) != 0 ? MT_CFA_RBP : MT_CFA_RSP;
    const mt_s32 cfa_offset = 8 * (rule & MT_UNWIND_CFA_MASK);
    return slot == 0 ? plain(base, cfa_offset) : plain(base, cfa_offset, MT_RBP_AT_CFA, -8 * (slot + 1));
}

inline ExpandedRule expanded_at(const UnwindTable& table, uint64_t vaddr) {
    return expand(table, table.rule_at(vaddr));
}

}  // namespace memtrace::unwind_test
