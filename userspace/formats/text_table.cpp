#include "formats/text_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "formats/columns.hpp"

namespace memtrace {
namespace {

bool drop_one(std::vector<Column>& columns) {
    const auto least = std::max_element(columns.begin(), columns.end(), [](const auto& left, const auto& right) {
        return left.dispensable < right.dispensable;
    });
    if (least->dispensable == 0) return false;
    columns.erase(least);
    return true;
}

std::string emphasized(std::string_view text, Emphasis emphasis, bool grows, const Style& style) {
    if (emphasis == Emphasis::headline) return style.headline(text);
    if (emphasis == Emphasis::growth && grows) return style.growth(text);
    return std::string(text);
}

}  // namespace

size_t Column::width() const {
    size_t widest = display_width(title);
    for (const std::string& cell : cells)
        widest = std::max(widest, display_width(cell));
    return widest;
}

size_t line_width(const std::vector<Column>& columns) {
    size_t width = 0;
    for (const Column& column : columns)
        width += column.width() + (width == 0 ? 0 : column_gap);
    return width;
}

void drop_columns(std::vector<Column>& columns, size_t width) {
    while (width > 0 && line_width(columns) > width && drop_one(columns)) {
    }
}

std::string table_head(const std::vector<Column>& columns, const Style& style) {
    std::string line;
    for (const Column& column : columns)
        line += (line.empty() ? "" : std::string(column_gap, ' ')) +
                (column.is_left_aligned ? column.title : pad_left(column.title, column.width()));
    return style.quiet(line) + '\n';
}

std::string table_row(const std::vector<Column>& columns, size_t row, const Style& style) {
    std::string line;
    for (const Column& column : columns) {
        const std::string& cell = column.cells[row];
        const std::string padded = column.is_left_aligned ? cell : pad_left(cell, column.width());
        if (!line.empty()) line += std::string(column_gap, ' ');
        line += emphasized(padded, column.emphasis, cell.starts_with('+'), style);
    }
    return line + '\n';
}

std::string share_of(uint64_t part, uint64_t whole) {
    if (whole == 0) return "-";
    const double percent = 100.0 * static_cast<double>(part) / static_cast<double>(whole);
    if (part > 0 && percent < 1) return "<1%";
    return fmt::format("{:.0f}%", percent);
}
}  // namespace memtrace
