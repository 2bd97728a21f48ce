// The command line -> Request. The only place that knows CLI11; prints nothing and touches nothing outside its
// arguments.
#pragma once

#include <span>

#include "base/result.hpp"
#include "cli/options.hpp"
#include "cli/pid_arguments.hpp"

namespace memtrace {

/// What the arguments (without the program's name) ask for. Every error has status ExitStatus::usage and a hint.
/// `same_program` tells process ids from INTERVAL and COUNT (cli/pid_arguments.hpp). Thread-safe if that is.
Result<Request> parse_arguments(std::span<const char* const> arguments, const SameProgram& same_program = {});

}  // namespace memtrace
