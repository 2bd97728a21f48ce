// `memtrace doctor`: what a session takes from this machine. Uses kernel/.
#pragma once

#include <string>

#include "base/result.hpp"
#include "cli/options.hpp"
#include "kernel/session.hpp"

namespace memtrace {

/// The kernel's tables, one a line, with the sizes that `options` ask for.
std::string tables_text(const TableSizes& sizes, const SessionOptions& options);

/// Loads the programs, as a session would, and tells the sizes of its tables. Errors: not_privileged,
/// kernel_lacks_feature.
Result<std::string> doctor_text(const Options& options);

}  // namespace memtrace
