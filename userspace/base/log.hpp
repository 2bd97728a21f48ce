// The only way to stderr: one line a message, `memtrace: ...`, and a second line `hint: ...` where there is a way out.
// Thread-safe: each message is one write(2).
#pragma once

#include <string_view>

#include "base/result.hpp"

namespace memtrace {

/// `memtrace: WHAT: WHY` and, unless empty, `hint: WAY`.
void log_error(const Error& error);
/// `memtrace: MESSAGE` for the person who waits: what was attached, who exited.
void log_info(std::string_view message);
/// `memtrace: warning: MESSAGE`.
void log_warning(std::string_view message);
/// With --quiet: log_info says nothing; errors and warnings still speak.
void set_log_quiet(bool is_quiet);

}  // namespace memtrace
