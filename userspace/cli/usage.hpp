// What --help says before the options.
#pragma once

#include <string_view>

namespace memtrace {

inline constexpr std::string_view usage_text = R"(
Examples:
  memtrace -p 1234               what process 1234 allocates and does not free
  memtrace -p 1234 -o 1m 60 1    one report after 60 s, of blocks 1 minute old
  memtrace -- ./server --fast    start a program, trace it from the beginning

Usage:
  memtrace [OPTIONS] [INTERVAL [COUNT]]
  memtrace [OPTIONS] [INTERVAL [COUNT]] -- COMMAND [ARG...]
  memtrace census PID [--type-names FILE]
  memtrace list [--placement -p PID]
  memtrace doctor

)";

}  // namespace memtrace
