// Text in terminal columns: how wide it is, cut to fit, padded, wrapped. Pure; widths are in columns, not in bytes.
// Every text must be printable UTF-8 (base/text.hpp) without colors.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace memtrace {

/// Columns that a terminal needs for `text`: 2 for wide characters, 0 for combining ones (wcwidth(3) of C.UTF-8).
size_t display_width(std::string_view text);

/// At most `width` columns, with an ellipsis in place of the middle: a C++ name says most at its ends.
std::string shorten_middle(std::string_view text, size_t width);
/// At most `width` columns of a path, with an ellipsis in place of its first folders, or of the start of its last name.
std::string shorten_path(std::string_view path, size_t width);

/// `text` and blanks up to `width` columns; longer text stays whole.
std::string pad_right(std::string_view text, size_t width);
std::string pad_left(std::string_view text, size_t width);

/// Lines of at most `width` columns, broken at blanks; all but the first start with `indent` blanks. Words are never
/// broken. Width 0: one line.
std::vector<std::string> wrap_words(std::string_view text, size_t width, size_t indent);

}  // namespace memtrace
