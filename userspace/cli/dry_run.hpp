// `memtrace TARGET... --dry-run`: every probe that tracing the targets would set now, and none is set. Uses everything
// that finds targets and places probes.
#pragma once

#include <string>

#include "base/result.hpp"
#include "cli/options.hpp"

namespace memtrace {

/// A line a probe, and who would be traced. Loads nothing into the kernel. Errors: those that tracing the targets would
/// meet before its first probe.
Result<std::string> dry_run_text(const Options& options);

}  // namespace memtrace
