#include "formats/columns.hpp"

#include <locale.h>
#include <wchar.h>

#include <algorithm>
#include <memory>

namespace memtrace {
namespace {

constexpr std::string_view ellipsis = "…";

/// wcwidth(3) answers for the locale of the calling thread: C.UTF-8 while this lives, whatever the program's is.
class Utf8Locale {
  public:
    Utf8Locale() {
        static const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
        if (utf8 != nullptr) previous_ = uselocale(utf8);
    }
    ~Utf8Locale() {
        if (previous_ != nullptr) uselocale(previous_);
    }
    Utf8Locale(const Utf8Locale&) = delete;
    Utf8Locale& operator=(const Utf8Locale&) = delete;

  private:
    locale_t previous_ = nullptr;
};

struct Character {
    size_t bytes = 0;
    size_t columns = 0;
};

/// The first character of valid UTF-8.
Character first_character(std::string_view text) {
    const auto lead = static_cast<unsigned char>(text[0]);
    if (lead < 0x80) return {1, 1};
    const size_t length = std::min<size_t>(text.size(), lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2);
    auto code = static_cast<wchar_t>(lead & (0xff >> (length + 1)));
    for (size_t index = 1; index < length; ++index)
        code = (code << 6) | (static_cast<unsigned char>(text[index]) & 0x3f);
    const int columns = wcwidth(code);
    // What wcwidth does not know is drawn as one replacement character.
    return {length, columns < 0 ? 1 : static_cast<size_t>(columns)};
}

/// Bytes of the longest start of `text` that fits into `width` columns.
size_t fitting_bytes(std::string_view text, size_t width) {
    const Utf8Locale locale;
    size_t bytes = 0;
    while (bytes < text.size()) {
        const Character character = first_character(text.substr(bytes));
        if (character.columns > width) break;
        width -= character.columns;
        bytes += character.bytes;
    }
    return bytes;
}

/// The longest end of `text` that fits into `width` columns.
std::string_view fitting_end(std::string_view text, size_t width) {
    const Utf8Locale locale;
    size_t total = display_width(text);
    while (total > width) {
        const Character character = first_character(text);
        total -= character.columns;
        text.remove_prefix(character.bytes);
    }
    return text;
}

}  // namespace

size_t display_width(std::string_view text) {
    const Utf8Locale locale;
    size_t width = 0;
    while (!text.empty()) {
        const Character character = first_character(text);
        width += character.columns;
        text.remove_prefix(character.bytes);
    }
    return width;
}

std::string shorten_middle(std::string_view text, size_t width) {
    if (display_width(text) <= width) return std::string(text);
    if (width == 0) return {};
    const size_t end_columns = (width - 1) / 2;
    const size_t start_columns = width - 1 - end_columns;
    std::string shortened(text.substr(0, fitting_bytes(text, start_columns)));
    shortened += ellipsis;
    shortened += fitting_end(text, end_columns);
    return shortened;
}

std::string shorten_path(std::string_view path, size_t width) {
    if (display_width(path) <= width) return std::string(path);
    if (width == 0) return {};
    std::string_view rest = path;
    for (size_t slash = rest.find('/'); slash != std::string_view::npos; slash = rest.find('/')) {
        rest.remove_prefix(slash + 1);
        if (display_width(rest) + 2 <= width) return std::string(ellipsis) + "/" + std::string(rest);
    }
    if (display_width(rest) <= width) return std::string(rest);
    return std::string(ellipsis) + std::string(fitting_end(rest, width - 1));
}

std::string pad_right(std::string_view text, size_t width) {
    const size_t used = display_width(text);
    return std::string(text) + std::string(width > used ? width - used : 0, ' ');
}

std::string pad_left(std::string_view text, size_t width) {
    const size_t used = display_width(text);
    return std::string(width > used ? width - used : 0, ' ') + std::string(text);
}

std::vector<std::string> wrap_words(std::string_view text, size_t width, size_t indent) {
    std::vector<std::string> lines;
    std::string line;
    while (!text.empty()) {
        // A word with the blanks in front of it.
        const size_t word_start = std::min(text.find_first_not_of(' '), text.size());
        const size_t word_end = std::min(text.find(' ', word_start), text.size());
        const bool is_first_word = display_width(line) <= (lines.empty() ? 0 : indent);
        if (width > 0 && !is_first_word && display_width(line) + display_width(text.substr(0, word_end)) > width) {
            lines.push_back(std::move(line));
            line = std::string(indent, ' ');
            text.remove_prefix(word_start);
            continue;
        }
        line += text.substr(0, word_end);
        text.remove_prefix(word_end);
    }
    lines.push_back(std::move(line));
    return lines;
}

}  // namespace memtrace
