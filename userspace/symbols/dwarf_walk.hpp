// Walking over debug information that may be damaged or hostile: always forwards, never deeper or longer than a limit.
// Uses libdw.
#pragma once

#include <dwarf.h>
#include <elfutils/libdw.h>

#include <cstddef>
#include <cstdint>

namespace memtrace {

/// Scopes in scopes; compilers stay far below.
constexpr uint32_t deepest_scope = 200;

/// What may still be spent on one file, in entries looked at: a hostile one may have the same entries walked again and
/// again. 100 MB of debug information hold some 20 million entries.
class WalkBudget {
  public:
    /// False when nothing is left.
    bool take_step() { return take(1); }
    /// For what is kept in memory, some 50 bytes each.
    bool take_record() { return take(32); }

  private:
    bool take(uint64_t cost) {
        if (left_ < cost) return false;
        left_ -= cost;
        return true;
    }
    uint64_t left_ = uint64_t{1} << 28;
};

/// `visit(Dwarf_Die&)` for each child of `parent`.
template <typename Visit>
void for_each_child(Dwarf_Die& parent, WalkBudget& budget, Visit visit) {
    Dwarf_Die child;
    if (::dwarf_child(&parent, &child) != 0) return;
    while (budget.take_step()) {
        visit(child);
        Dwarf_Die next;
        // DW_AT_sibling may say anything.
        if (::dwarf_siblingof(&child, &next) != 0 || next.addr <= child.addr) return;
        child = next;
    }
}

/// `visit(start, end)` for each range of addresses of `die`; the result tells whether there was one.
template <typename Visit>
bool for_each_range(Dwarf_Die& die, WalkBudget& budget, Visit visit) {
    ptrdiff_t position = 0;
    Dwarf_Addr base = 0, start = 0, end = 0;
    bool has_ranges = false;
    while ((position = ::dwarf_ranges(&die, position, &base, &start, &end)) > 0 && budget.take_record()) {
        if (start >= end) continue;
        visit(start, end);
        has_ranges = true;
    }
    return has_ranges;
}

}  // namespace memtrace
