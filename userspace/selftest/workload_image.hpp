// The program of workload.c, built with memtrace and carried inside it, so that no compiler and no second file is
// needed where memtrace runs.
#pragma once

#include <span>

namespace memtrace {

/// The whole ELF file; lives as long as the program.
std::span<const char> workload_image();

}  // namespace memtrace
