// How a process ended, in words and as an exit status. Uses base only.
#pragma once

#include <cstdint>
#include <string>

namespace memtrace {

/// "exited with status 3", "killed by signal 9 (Killed)", "... (core dumped)". `exit_code` is as wait(2) reports it.
std::string describe_end(uint32_t exit_code);
/// As a shell has it: the status, or 128 + the signal.
int shell_status(uint32_t exit_code);

}  // namespace memtrace
