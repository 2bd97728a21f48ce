// The standard output of a short helper program. Uses base only. No shell; no child is left behind.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"

namespace memtrace {

struct ChildOutput {
    std::string text;     // standard output, at most 1 MiB
    int exit_status = 0;  // 128 + n when signal n ended it
};

/// Runs the program at `arguments[0]` with `environment`, its standard input and error being /dev/null, for at most
/// `timeout_ms`; then it is killed and that is an Error, as is output beyond the bound.
Result<ChildOutput> output_of(const std::vector<std::string>& arguments, char* const* environment, int timeout_ms);

}  // namespace memtrace
