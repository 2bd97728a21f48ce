// `memtrace census PID`. Uses runtimes/ and formats/.
#pragma once

#include "cli/options.hpp"

namespace memtrace {

/// Writes one census, or a series of them until a signal, to standard output; the exit status.
int run_census_command(const Census& options);

}  // namespace memtrace
