// `memtrace selftest`: memtrace traces a program whose truth is known, on the machine where it runs, and compares.
// Uses base only: it starts this very program as a user would, and reads its JSON lines.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"

namespace memtrace {

struct SelfTestResult {
    std::string text;  // for standard output
    ExitStatus status = ExitStatus::ok;
};

/// `options` go to the memtrace that traces. Ends within StartedProgram::step_limit a step, normally within two
/// seconds. The status is ok when all is exact, that of the tracing where it failed, else failure. What the tracing
/// itself had to say is on stderr by then. Leaves no process behind.
SelfTestResult run_selftest(const std::vector<std::string>& options);

}  // namespace memtrace
