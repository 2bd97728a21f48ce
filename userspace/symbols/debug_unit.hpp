// One compile unit's functions, the calls inlined into them, and its lines, each read when it is first asked for. Uses
// libdw.
#pragma once

#include <elfutils/libdw.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "symbols/dwarf_walk.hpp"
#include "symbols/range_map.hpp"

namespace memtrace {

/// A frame as the debug information has it. The texts belong to the Dwarf.
struct SourceFrame {
    const char* function = nullptr;  // linkage name, else the name in the source; null if unknown
    const char* file = nullptr;      // null if unknown
    uint32_t line = 0;               // 0 if unknown
    bool is_inlined = false;
};

/// What the units of one file share.
struct WalkState {
    WalkBudget budget;
    std::unordered_set<const void*> barren_units;  // imported units without functions, by the address of their entry
};

class DebugUnit {
  public:
    /// `die` is the unit's own entry, the skeleton's where the unit is split.
    explicit DebugUnit(const Dwarf_Die& die) : die_(die), body_(die) {}

    /// The frames at `address`, innermost first, the function's own last; one without a name where there is only a
    /// line; none where there is nothing.
    std::vector<SourceFrame> frames_at(uint64_t address, WalkState& state);

  private:
    struct InlinedCall {
        Dwarf_Die die;
        int64_t parent = -1;  // in calls; -1: the function itself
        uint64_t call_file = 0;
        uint32_t call_line = 0;
    };
    struct InlineTree {
        std::vector<InlinedCall> calls;
        RangeMap ranges;
    };
    struct Function {
        Dwarf_Die die;
        std::unique_ptr<InlineTree> tree;  // null: not read yet
    };

    void open(WalkState& state);
    void add_functions(Dwarf_Die& parent, bool is_deep, uint32_t depth, Walk& walk, WalkState& state);
    void add_function(Dwarf_Die& die, WalkState& state);
    void add_imported(Dwarf_Die& import, uint32_t depth, WalkState& state);
    std::optional<uint32_t> function_at(uint64_t address, WalkState& state);
    static void add_inlined(Dwarf_Die& parent, int64_t parent_call, uint32_t depth, InlineTree& tree, Walk& walk,
                            WalkBudget& budget);
    SourceFrame line_at(uint64_t address);
    const char* file_name(uint64_t number) const;

    Dwarf_Die die_;
    Dwarf_Die body_;  // where the functions are: die_, or the split unit's
    Dwarf_Files* files_ = nullptr;
    bool is_open_ = false;
    bool has_nested_functions_ = false;  // those inside functions and classes are in functions_ as well
    std::vector<Function> functions_;
    RangeMap function_ranges_;
};

}  // namespace memtrace
