#include "cli/list_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "probes/allocator_families.hpp"

namespace memtrace {
namespace {

/// A line's cells but the last, which needs no width.
using Columns = std::array<std::string, 5>;

std::string_view operation_name(uint8_t operation) {
    switch (operation) {
        case MT_OP_ALLOCATE:
            return "allocate";
        case MT_OP_FREE:
            return "free";
        case MT_OP_REALLOCATE:
            return "reallocate";
        case MT_OP_ALLOCATE_OUT:
            return "allocate-out";
        case MT_OP_DELEGATE:
            return "delegate";
        case MT_OP_RESIZE:
            return "resize";
        case MT_OP_MAP:
            return "map";
        case MT_OP_UNMAP:
            return "unmap";
        case MT_OP_REMAP:
            return "remap";
        default:
            return "none";
    }
}

std::string arguments_text(const AllocatorFunction& function) {
    const std::array<std::pair<std::string_view, uint8_t>, 4> arguments = {{
        {"size", function.row.size_argument},
        {"count", function.row.count_argument},
        {"old", function.row.old_argument},
        {"out", function.row.out_argument},
    }};
    std::string text;
    for (const auto& [name, number] : arguments)
        if (number != 0) text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, number);
    if (function.null_does_nothing) text += ",null=nothing";
    return text.empty() ? "-" : text;
}

Columns columns_of(const AllocatorFunction& function) {
    return {std::string(function.family), std::string(function.symbol),
            std::string(operation_name(function.row.operation)),
            function.kind == BlockKind::mapping ? "mapping" : "heap", arguments_text(function)};
}

}  // namespace

std::string allocator_list() {
    std::vector<std::pair<Columns, std::string_view>> lines = {
        {{"# family", "symbol", "operation", "kind", "arguments"}, "function"}};
    for (const AllocatorFunction& function : built_in_functions())
        if (!is_reserved_row(function)) lines.emplace_back(columns_of(function), function.name);

    std::array<size_t, std::tuple_size_v<Columns>> widths{};
    for (const auto& [columns, name] : lines)
        for (size_t index = 0; index < columns.size(); ++index)
            widths[index] = std::max(widths[index], columns[index].size());

    std::string text;
    for (const auto& [columns, name] : lines) {
        for (size_t index = 0; index < columns.size(); ++index)
            text += fmt::format("{:<{}}  ", columns[index], widths[index]);
        text += name;
        text += '\n';
    }
    return text;
}

}  // namespace memtrace
