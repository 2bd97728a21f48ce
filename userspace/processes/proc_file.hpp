// Whole small files of /proc. Uses base only.
#pragma once

#include <sys/types.h>

#include <string>
#include <variant>

namespace memtrace {

/// The content of `path`, or the errno of the call that failed. Thread-safe.
std::variant<std::string, int> read_whole_file(const std::string& path);
/// "/proc/PID/NAME".
std::string proc_path(pid_t pid, const char* name);

}  // namespace memtrace
