// The command line -> Request. The only place that knows CLI11; prints nothing and touches nothing outside its
// arguments.
#pragma once

#include <span>

#include "base/result.hpp"
#include "cli/options.hpp"

namespace memtrace {

/// What the arguments (without the program's name) ask for. Every error has status ExitStatus::usage and a hint.
/// Thread-safe.
Result<Request> parse_arguments(std::span<const char* const> arguments);

}  // namespace memtrace
