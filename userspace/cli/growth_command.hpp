// `memtrace -p PID --growth`. Uses processes, runtimes, heap and formats.
#pragma once

#include "cli/options.hpp"

namespace memtrace {

/// Writes how the memory of the processes grows until a signal, the last report or their end; the exit status.
int run_growth_command(const Options& options);

}  // namespace memtrace
