// Which files a command will load, before it runs: its interpreters, its loader and its libraries. Uses base only. No
// shell is involved; the program's own loader is asked, so that LD_LIBRARY_PATH and LD_PRELOAD count as they will.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"

namespace memtrace {

/// What a shell would end with; the numbers are those of POSIX sh.
enum class CommandStatus : int {
    found = 0,
    not_executable = 126,
    not_found = 127,
};

struct CommandPath {
    std::string path;  // as execve takes it; empty unless found
    CommandStatus status = CommandStatus::not_found;
};

/// Finds `command` as execvp does (execvp(3), glibc): a name with a slash is a path, else PATH of `environment` is
/// searched ("/bin:/usr/bin" without one). `environment` is NULL-ended NAME=VALUE as `environ`. Thread-safe.
CommandPath find_command(const std::string& command, char* const* environment);
/// The Error for a command that was not found; the caller ends with `status` as the exit status.
Error command_error(const std::string& command, CommandStatus status);

/// The program at `path` (from find_command), the interpreters of a script (`#!`, at most 5 deep, through `env`), the
/// loader and every library that the loader would map, without duplicates. Runs the loader with --list and
/// `environment`, for at most 10 s; no constructor runs. A library that the loader does not find is left out: the
/// command will not start either. An Error when a file is no 64-bit ELF file or the loader fails. Leaves no child
/// behind.
Result<std::vector<std::string>> files_loaded_by(const std::string& path, char* const* environment);

}  // namespace memtrace
