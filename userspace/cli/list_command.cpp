#include "cli/list_command.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "probes/allocator_families.hpp"
#include "probes/function_arguments.hpp"

namespace memtrace {
namespace {

/// A line's cells but the last, which needs no width.
using Columns = std::array<std::string, 5>;

/// Every family has the same functions around malloc, so that one of them stands for all.
bool is_repeated(const AllocatorFunction& function) {
    return function.scope == RowScope::family && function.family != allocator_families().front().name;
}

Columns columns_of(const AllocatorFunction& function) {
    return {function.scope == RowScope::family ? "*" : std::string(function.family), std::string(function.symbol),
            std::string(operation_name(function.row.operation)), std::string(kind_name(function.kind)),
            arguments_text(function)};
}

/// "jemalloc (je_, _rjem_)": a family and the prefixes of its symbols.
std::string family_text(const AllocatorFamily& family) {
    if (family.prefixes.empty()) return std::string(family.name);
    return fmt::format("{} ({})", family.name, fmt::join(family.prefixes, ", "));
}

std::string families_text() {
    std::string text;
    for (const AllocatorFamily& family : allocator_families())
        text += (text.empty() ? "" : ", ") + family_text(family);
    return text;
}

}  // namespace

std::string allocator_list() {
    std::vector<std::pair<Columns, std::string_view>> lines = {
        {{"# family", "symbol", "operation", "kind", "arguments"}, "function"}};
    for (const AllocatorFunction& function : built_in_functions())
        if (!is_reserved_row(function) && !is_repeated(function))
            lines.emplace_back(columns_of(function), function.name);

    std::array<size_t, std::tuple_size_v<Columns>> widths{};
    for (const auto& [columns, name] : lines)
        for (size_t index = 0; index < columns.size(); ++index)
            widths[index] = std::max(widths[index], columns[index].size());

    std::string text = fmt::format(
        "# * is each of these, with its prefixes: {}; custom is seen to return by instructions\n", families_text());
    for (const auto& [columns, name] : lines) {
        for (size_t index = 0; index < columns.size(); ++index)
            text += fmt::format("{:<{}}  ", columns[index], widths[index]);
        text += name;
        text += '\n';
    }
    return text;
}

}  // namespace memtrace
