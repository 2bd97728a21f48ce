// The few colors of the text report: bold for headline numbers, yellow for growth, red for loss. Pure.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace memtrace {

/// SGR sequences of ECMA-48 around text, or nothing where colors are not wanted.
class Style {
  public:
    explicit Style(bool has_colors) : has_colors_(has_colors) {}

    std::string headline(std::string_view text) const { return colored("1", text); }
    std::string growth(std::string_view text) const { return colored("33", text); }
    std::string loss(std::string_view text) const { return colored("1;31", text); }
    std::string quiet(std::string_view text) const { return colored("2", text); }

  private:
    std::string colored(std::string_view code, std::string_view text) const {
        if (!has_colors_ || text.empty()) return std::string(text);
        return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
    }

    bool has_colors_;
};

}  // namespace memtrace
