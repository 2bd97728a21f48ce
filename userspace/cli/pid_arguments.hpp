// `-p $(pidof x)`, which a shell turns into `-p 12 34 56`: which of the numbers are process ids. Uses base only; pure.
#pragma once

#include <sys/types.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace memtrace {

/// Do both processes run the same program? False when one of them does not exist.
using SameProgram = std::function<bool(pid_t, pid_t)>;

/// `arguments` with the numbers that follow `-p PID` and are process ids joined to it: -p 12,34,56. They are, as far as
/// the last that runs the same program as PID. What INTERVAL COUNT could mean as well is an Error of status usage: a
/// number of seconds up to a minute, or a number before such a one that does not run the program. A value that names
/// several processes itself takes no more. Neither does `same_program` when it is empty.
Result<std::vector<std::string>> join_pids(std::span<const char* const> arguments, const SameProgram& same_program);

}  // namespace memtrace
