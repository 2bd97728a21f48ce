// Every format that memtrace writes. A new one is a file with its make function and a line in list.cpp.
#pragma once

#include <span>
#include <string_view>

#include "formats/format.hpp"

namespace memtrace {

struct Format {
    std::string_view name;         // of --format
    std::string_view description;  // for --help
    MakeWriter make;
};

/// All formats, the default first.
std::span<const Format> formats();
/// The format of that name; null if there is none.
const Format* find_format(std::string_view name);

}  // namespace memtrace
