#include "unwind/function_layout.hpp"

#include <algorithm>
#include <iterator>

namespace memtrace {
namespace {

constexpr uint32_t function_alignment_bytes = 16;

/// `functions` by address, each cut where the one before it ends.
std::vector<FunctionPart> disjoint(std::vector<FrameFunction> functions) {
    std::ranges::stable_sort(functions, {}, &FrameFunction::start);
    std::vector<FunctionPart> parts;
    parts.reserve(functions.size());
    uint32_t free_from = 0;
    for (const FrameFunction& function : functions) {
        const uint32_t start = std::max(function.start, free_from);
        if (start >= function.end) continue;
        parts.push_back({start, function.end, function});
        free_from = function.end;
    }
    return parts;
}

/// What `added` has and `taken` has not; both by address and disjoint.
std::vector<FunctionPart> subtract(const std::vector<FunctionPart>& added, const std::vector<FunctionPart>& taken) {
    std::vector<FunctionPart> parts;
    auto next = taken.begin();
    for (const FunctionPart& part : added) {
        uint32_t start = part.start;
        while (next != taken.end() && next->end <= start)
            ++next;
        for (auto hole = next; hole != taken.end() && hole->start < part.end; ++hole) {
            if (start < hole->start) parts.push_back({start, hole->start, part.function});
            start = hole->end;
        }
        if (start < part.end) parts.push_back({start, part.end, part.function});
    }
    return parts;
}

void append(std::vector<UnwindRow>& laid, uint32_t offset, mt_u16 rule) {
    if (!laid.empty() && laid.back().rule == rule) return;
    laid.push_back({offset, rule});
}

/// The rows of `part`, the first moved to where it starts.
void append_part(std::vector<UnwindRow>& laid, const FunctionPart& part, const std::vector<UnwindRow>& rows) {
    const auto first = rows.begin() + static_cast<std::ptrdiff_t>(part.function.first_row);
    const auto end = first + static_cast<std::ptrdiff_t>(part.function.row_count);
    const auto offset_after = [](uint32_t offset, const UnwindRow& row) { return offset < row.offset; };
    for (auto row = std::prev(std::upper_bound(first, end, part.start, offset_after)); row != end; ++row) {
        if (row->offset >= part.end) break;
        append(laid, std::max(row->offset, part.start), row->rule);
    }
}

}  // namespace

std::vector<FunctionPart> add_functions(std::vector<FunctionPart> parts, std::vector<FrameFunction> functions) {
    std::vector<FunctionPart> added = disjoint(std::move(functions));
    if (parts.empty()) return added;
    added = subtract(added, parts);
    parts.insert(parts.end(), added.begin(), added.end());
    std::ranges::sort(parts, {}, &FunctionPart::start);
    return parts;
}

std::vector<UnwindRow> lay_out(const std::vector<FunctionPart>& parts, const std::vector<UnwindRow>& rows) {
    std::vector<UnwindRow> laid;
    if (parts.empty()) return laid;
    laid.reserve(rows.size());
    constexpr uint32_t page_mask = (1u << MT_UNWIND_PAGE_SHIFT) - 1;
    uint32_t end = parts.front().start & ~page_mask;
    // Row 0 lies at the start of its page, however near the first function is.
    if (end < parts.front().start) append(laid, end, MT_UNWIND_GAP);
    end = parts.front().start;
    for (const FunctionPart& part : parts) {
        if (part.start - end >= function_alignment_bytes) append(laid, end, MT_UNWIND_GAP);
        append_part(laid, part, rows);
        end = part.end;
    }
    append(laid, end, MT_UNWIND_GAP);
    return laid;
}

}  // namespace memtrace
