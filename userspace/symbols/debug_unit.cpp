#include "symbols/debug_unit.hpp"

#include <algorithm>

#include "symbols/split_files.hpp"

namespace memtrace {
namespace {

uint64_t number_of(Dwarf_Die& die, unsigned attribute_name) {
    Dwarf_Attribute attribute;
    Dwarf_Word value = 0;
    if (!::dwarf_attr(&die, attribute_name, &attribute) || ::dwarf_formudata(&attribute, &value) != 0) return 0;
    return value;
}

/// By DW_AT_abstract_origin and DW_AT_specification; libdw follows no more than 16 of them.
const char* name_of(Dwarf_Die& die) {
    for (const unsigned name : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name, DW_AT_name}) {
        Dwarf_Attribute attribute;
        if (!::dwarf_attr_integrate(&die, name, &attribute)) continue;
        if (const char* text = ::dwarf_formstring(&attribute)) return text;
    }
    return nullptr;
}

bool is_block(int tag) {
    return tag == DW_TAG_lexical_block || tag == DW_TAG_try_block || tag == DW_TAG_catch_block ||
           tag == DW_TAG_with_stmt;
}

/// Scopes whose functions are found without looking into other functions.
bool is_outer_scope(int tag) {
    return tag == DW_TAG_namespace || tag == DW_TAG_module || tag == DW_TAG_compile_unit ||
           tag == DW_TAG_partial_unit || tag == DW_TAG_skeleton_unit;
}

/// Scopes in which compilers put functions beside the unit's own level: methods of local classes, nested functions.
bool may_hold_nested_functions(int tag) {
    return is_block(tag) || tag == DW_TAG_subprogram || tag == DW_TAG_class_type || tag == DW_TAG_structure_type ||
           tag == DW_TAG_union_type || tag == DW_TAG_inlined_subroutine || tag == DW_TAG_enumeration_type;
}

}  // namespace

void DebugUnit::open(WalkState& state) {
    is_open_ = true;
    if (const auto split = split_unit_of(die_)) {
        body_ = *split;
        state.budget.add(size_of_debug_info(::dwarf_cu_getdwarf(body_.cu)));
    }
    Walk walk(state.budget);
    add_functions(body_, false, 0, walk, state);
    function_ranges_.sort();
    size_t count = 0;
    if (::dwarf_getsrcfiles(&body_, &files_, &count) == 0) return;
    if (::dwarf_getsrcfiles(&die_, &files_, &count) != 0) files_ = nullptr;
}

/// `is_deep`: only those inside functions and classes, for a unit whose other functions are known.
void DebugUnit::add_functions(Dwarf_Die& parent, bool is_deep, uint32_t depth, Walk& walk, WalkState& state) {
    if (depth > deepest_scope) return;
    const bool is_nested = !is_outer_scope(::dwarf_tag(&parent));
    walk.for_each_child(parent, [&](Dwarf_Die& child) {
        const int tag = ::dwarf_tag(&child);
        if (tag == DW_TAG_subprogram && is_nested == is_deep) add_function(child, state);
        if (tag == DW_TAG_imported_unit && !is_deep) add_imported(child, depth, state);
        if (is_outer_scope(tag) || (is_deep && may_hold_nested_functions(tag)))
            add_functions(child, is_deep, depth + 1, walk, state);
    });
}

void DebugUnit::add_function(Dwarf_Die& die, WalkState& state) {
    if (!::dwarf_hasattr(&die, DW_AT_low_pc) && !::dwarf_hasattr(&die, DW_AT_ranges)) return;
    const auto number = static_cast<uint32_t>(functions_.size());
    const bool has_code = for_each_range(
        die, state.budget, [&](uint64_t start, uint64_t end) { function_ranges_.add(start, end, number); });
    if (has_code) functions_.push_back({die, nullptr});
}

/// Partial units hold what several units share (dwz, link-time optimization): hardly ever code.
void DebugUnit::add_imported(Dwarf_Die& import, uint32_t depth, WalkState& state) {
    Dwarf_Attribute attribute;
    Dwarf_Die unit;
    if (!::dwarf_attr(&import, DW_AT_import, &attribute) || !::dwarf_formref_die(&attribute, &unit)) return;
    if (!state.barren_units.insert(unit.addr).second) return;
    const size_t before = functions_.size();
    Walk walk(state.budget);
    add_functions(unit, false, depth + 1, walk, state);
    if (functions_.size() != before) state.barren_units.erase(unit.addr);
}

std::optional<uint32_t> DebugUnit::function_at(uint64_t address, WalkState& state) {
    auto found = function_ranges_.find(address);
    if (found || has_nested_functions_) return found;
    has_nested_functions_ = true;
    Walk walk(state.budget);
    add_functions(body_, true, 0, walk, state);
    function_ranges_.sort();
    return function_ranges_.find(address);
}

void DebugUnit::add_inlined(Dwarf_Die& parent, int64_t parent_call, uint32_t depth, InlineTree& tree, Walk& walk,
                            WalkBudget& budget) {
    if (depth > deepest_scope) return;
    walk.for_each_child(parent, [&](Dwarf_Die& child) {
        const int tag = ::dwarf_tag(&child);
        if (is_block(tag)) add_inlined(child, parent_call, depth + 1, tree, walk, budget);
        if (tag != DW_TAG_inlined_subroutine || !budget.take_record()) return;
        const auto call = static_cast<uint32_t>(tree.calls.size());
        tree.calls.push_back({child, parent_call, number_of(child, DW_AT_call_file),
                              static_cast<uint32_t>(number_of(child, DW_AT_call_line))});
        for_each_range(child, budget, [&](uint64_t start, uint64_t end) { tree.ranges.add(start, end, call, depth); });
        add_inlined(child, call, depth + 1, tree, walk, budget);
    });
}

SourceFrame DebugUnit::line_at(uint64_t address) {
    SourceFrame frame;
    Dwarf_Line* line = ::dwarf_getsrc_die(&die_, address);
    int number = 0;
    if (!line) return frame;
    frame.file = ::dwarf_linesrc(line, nullptr, nullptr);
    if (::dwarf_lineno(line, &number) == 0) frame.line = static_cast<uint32_t>(number);
    return frame;
}

const char* DebugUnit::file_name(uint64_t number) const {
    return files_ ? ::dwarf_filesrc(files_, number, nullptr, nullptr) : nullptr;
}

std::vector<SourceFrame> DebugUnit::frames_at(uint64_t address, WalkState& state) {
    if (!is_open_) open(state);
    std::vector<SourceFrame> frames;
    SourceFrame frame = line_at(address);
    const auto number = function_at(address, state);
    if (!number) {
        if (frame.file) frames.push_back(frame);
        return frames;
    }
    Function& function = functions_[*number];
    if (!function.tree) {
        function.tree = std::make_unique<InlineTree>();
        Walk walk(state.budget);
        add_inlined(function.die, -1, 0, *function.tree, walk, state.budget);
        function.tree->ranges.sort();
    }
    const auto innermost = function.tree->ranges.find(address);
    for (int64_t at = innermost ? int64_t{*innermost} : -1; at >= 0;) {
        InlinedCall& call = function.tree->calls[static_cast<size_t>(at)];
        frame.function = name_of(call.die);
        frame.is_inlined = true;
        frames.push_back(frame);
        frame = {nullptr, file_name(call.call_file), call.call_line, false};
        at = call.parent;
    }
    frame.function = name_of(function.die);
    frames.push_back(frame);
    return frames;
}

}  // namespace memtrace
