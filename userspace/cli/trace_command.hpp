// The default mode: trace targets and print leak reports until something ends it. Uses everything above cli/.
#pragma once

#include <span>

#include "cli/options.hpp"

namespace memtrace {

/// Runs a whole session; `arguments` are those that `options` came from, for the record. Returns memtrace's exit
/// status. What goes wrong has been said on stderr.
int run_trace_command(const Options& options, std::span<const char* const> arguments);

}  // namespace memtrace
