// Text to standard output, for the commands that only show something. Uses base only.
#pragma once

#include <string_view>

namespace memtrace {

/// Writes all of `text`; the exit status that follows from it. A reader that has gone is no failure.
int print(std::string_view text);

}  // namespace memtrace
