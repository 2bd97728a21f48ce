#include "tracing/raw_stacks.hpp"

#include <algorithm>

namespace memtrace {
namespace {

// Raw stacks are of the moments after a library appears; what they need is forgotten rather than kept for all time.
constexpr size_t max_tables = 64;

std::optional<std::string> error_of(WalkEnd end) {
    switch (end) {
        case WalkEnd::thread_start:
            return std::nullopt;
        case WalkEnd::too_many_frames:
            return "more frames than --max-stack";
        case WalkEnd::no_cfi:
            return "code without unwind information and without frame pointers";
        case WalkEnd::outside_copy:
            return "larger than what was kept of it until an unwind table was there";
        case WalkEnd::unsupported:
            return "unwind information of an unsupported kind";
        case WalkEnd::no_progress:
            return "a frame that is not above the one before";
    }
    return std::nullopt;
}

}  // namespace

CodeAt RawStacks::code_at(const mt_raw_stack_event& event, uint64_t address) {
    const auto location = stacks_.locate(event.header.owner, address, event.header.time_ns);
    if (!location || location->module->fd() < 0) return {};
    const auto vaddr = location->module->virtual_address(location->offset);
    if (!vaddr) return {};
    if (tables_.size() >= max_tables) tables_.clear();
    auto [entry, is_new] = tables_.try_emplace(location->module);
    if (is_new)
        if (auto table = build_unwind_table(location->module->fd(), -1, UnwindRows::all))
            entry->second = std::make_unique<UnwindTable>(std::move(*table));
    return {entry->second.get(), *vaddr};
}

WalkedStack RawStacks::walk(const mt_raw_stack_event& event) {
    WalkedStack walked;
    const size_t frame_count = std::min<size_t>(event.frame_count, MT_MAX_FRAMES);
    walked.return_addresses.assign(event.frames, event.frames + frame_count);
    constexpr uint64_t page_mask = 4095;
    const std::span<const uint8_t> pages(event.stack, std::min<size_t>(event.stack_bytes, MT_RAW_STACK_BYTES));
    const size_t below = std::min<size_t>(event.stack_pointer & page_mask, pages.size());
    const StackCopy stack{.pc = event.pc,
                          .stack_pointer = event.stack_pointer,
                          .frame_pointer = event.frame_pointer,
                          .bytes = pages.subspan(below)};
    const auto end = walk_stack(
        stack, [&](uint64_t pc) { return code_at(event, pc); }, max_frames_, walked.return_addresses);
    if (end != WalkEnd::too_many_frames || !folds_stacks_) walked.error = error_of(end);
    return walked;
}

}  // namespace memtrace
