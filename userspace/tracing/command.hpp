// A command that memtrace starts: it waits before its exec until the probes stand. Uses base only.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace memtrace {

/// A child process. When the object goes before `run`, the child ends without running the command.
class Command {
  public:
    /// Forks a child that will run the program at `path` with `arguments` (the first is its name) and waits. Signals
    /// that are blocked here are not blocked in the command.
    static Result<Command> prepare(const std::string& path, const std::vector<std::string>& arguments);

    pid_t pid() const { return pid_; }
    /// Lets the child run the command; the Error is the exec's.
    Result<void> run();

  private:
    Command(pid_t pid, Fd go, Fd exec_error, std::string path)
        : pid_(pid), go_(std::move(go)), exec_error_(std::move(exec_error)), path_(std::move(path)) {}

    pid_t pid_;
    Fd go_;
    Fd exec_error_;
    std::string path_;
};

}  // namespace memtrace
