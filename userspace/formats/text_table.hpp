// A table of the text report: columns with their cells, cut to the terminal. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/style.hpp"

namespace memtrace {

constexpr size_t column_gap = 2;

enum class Emphasis { none, headline, growth };

/// One column of the table. Where the terminal is too narrow, the column with the highest `dispensable` goes first;
/// 0 stays.
struct Column {
    std::string title;
    int dispensable = 0;
    Emphasis emphasis = Emphasis::none;
    bool is_left_aligned = false;
    std::vector<std::string> cells = {};

    size_t width() const;
};

/// Columns that a line of the table needs.
size_t line_width(const std::vector<Column>& columns);
/// Drops what does not fit into `width` columns (0: nothing).
void drop_columns(std::vector<Column>& columns, size_t width);

/// With the end of the line.
std::string table_head(const std::vector<Column>& columns, const Style& style);
std::string table_row(const std::vector<Column>& columns, size_t row, const Style& style);

/// "17%"; "-" where there is no whole.
std::string share_of(uint64_t part, uint64_t whole);

}  // namespace memtrace
