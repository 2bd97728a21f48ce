#include "symbols/inline_index.hpp"

#include <algorithm>

namespace memtrace {

InlineIndex::InlineIndex(Dwarf* dwarf) : dwarf_(dwarf) {
    state_.budget.add(size_of_debug_info(dwarf));
    if (Dwarf* common = ::dwarf_getalt(dwarf)) state_.budget.add(size_of_debug_info(common));
    Dwarf_CU* unit = nullptr;
    Dwarf_Half version = 0;
    uint8_t type = 0;
    Dwarf_Die die{};
    while (state_.budget.take_step() && ::dwarf_get_units(dwarf, unit, &unit, &version, &type, &die, nullptr) == 0) {
        if (type != DW_UT_compile && type != DW_UT_skeleton) continue;
        const auto number = static_cast<uint32_t>(units_.size());
        for_each_range(die, state_.budget, [&](uint64_t start, uint64_t end) { unit_ranges_.add(start, end, number); });
        units_.emplace_back(die);
        offsets_.push_back(::dwarf_dieoffset(&die));
    }
    unit_ranges_.sort();
}

/// A unit may leave out its own ranges (some assemblers): then .debug_aranges knows.
DebugUnit* InlineIndex::unit_at(uint64_t address) {
    if (const auto number = unit_ranges_.find(address)) return &units_[*number];
    Dwarf_Die die;
    if (!::dwarf_addrdie(dwarf_, address, &die)) return nullptr;
    const auto offset = std::lower_bound(offsets_.begin(), offsets_.end(), ::dwarf_dieoffset(&die));
    if (offset == offsets_.end() || *offset != ::dwarf_dieoffset(&die)) return nullptr;
    return &units_[static_cast<size_t>(offset - offsets_.begin())];
}

std::vector<SourceFrame> InlineIndex::frames_at(uint64_t address) {
    DebugUnit* unit = unit_at(address);
    return unit ? unit->frames_at(address, state_) : std::vector<SourceFrame>();
}

}  // namespace memtrace
