// Walking over debug information that may be damaged or hostile: always forwards, never deeper or longer than a limit.
// Uses libdw.
#pragma once

#include <dwarf.h>
#include <elfutils/libdw.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace memtrace {

/// Scopes in scopes; compilers stay far below.
constexpr uint32_t deepest_scope = 200;

/// What may still be spent on one file. Honest debug information stays far below: an entry has some 5 bytes and is
/// looked at three times at most.
class WalkBudget {
  public:
    /// For debug information of so many bytes more.
    void add(uint64_t size_bytes) {
        steps_ += 2 * size_bytes;
        records_ += size_bytes;
    }
    /// For looking at one entry. False when nothing is left.
    bool take_step() { return steps_ > 0 && steps_-- > 0; }
    /// For keeping something, some 50 bytes each.
    bool take_record() { return records_ > 0 && records_-- > 0; }

  private:
    uint64_t steps_ = 4'000'000;
    uint64_t records_ = 1'000'000;
};

/// One way through the entries of a unit, each of them once.
class Walk {
  public:
    explicit Walk(WalkBudget& budget) : budget_(budget) {}

    /// `visit(Dwarf_Die&)` for each child of `parent`; it may walk the child's children.
    template <typename Visit>
    void for_each_child(Dwarf_Die& parent, Visit visit) {
        Dwarf_Die child;
        if (::dwarf_child(&parent, &child) != 0) return;
        while (is_ahead(child) && budget_.take_step()) {
            furthest_ = child.addr;
            visit(child);
            Dwarf_Die next;
            if (::dwarf_siblingof(&child, &next) != 0) return;
            child = next;
        }
    }

  private:
    /// DW_AT_sibling may say anything.
    bool is_ahead(const Dwarf_Die& die) const { return !furthest_ || std::less<>()(furthest_, die.addr); }

    WalkBudget& budget_;
    const void* furthest_ = nullptr;
};

/// The size of .debug_info.
inline uint64_t size_of_debug_info(Dwarf* dwarf) {
    Dwarf_Off offset = 0, next = 0;
    size_t header_size = 0;
    while (::dwarf_next_unit(dwarf, offset, &next, &header_size, nullptr, nullptr, nullptr, nullptr, nullptr,
                             nullptr) == 0 &&
           next > offset)
        offset = next;
    return offset;
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
