// A program that the bench starts and talks to over pipes. Uses base/ only.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace memtrace {

/// Owns a child and both ends of the talk; a child that is still there is killed. Move-only.
class ChildProcess {
  public:
    /// Starts the program at `arguments[0]` with this process's environment and `variables` ("NAME=VALUE") before it.
    static Result<ChildProcess> start(const std::vector<std::string>& arguments,
                                      const std::vector<std::string>& variables);
    ChildProcess(ChildProcess&& other) noexcept;
    ChildProcess& operator=(ChildProcess&&) = delete;
    ~ChildProcess();

    pid_t pid() const { return pid_; }
    int input() const { return input_.get(); }    // the child reads what is written here
    int output() const { return output_.get(); }  // what the child wrote

    /// Reads what it wrote until a line has `part`; false at the end.
    bool read_until(std::string_view part);

    /// The child's status, 128 + n when signal n ended it; blocks until it ends. Once only.
    int wait();

  private:
    ChildProcess(pid_t pid, Fd input, Fd output);

    pid_t pid_ = 0;
    Fd input_;
    Fd output_;
};

}  // namespace memtrace
