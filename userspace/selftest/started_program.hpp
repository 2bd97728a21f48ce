// A program that the self-test starts and talks to by lines. Uses base only.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace memtrace {

/// Owns a child with pipes at its standard input and output; its standard error is ours. Killed and waited for at the
/// latest with the object. Every wait ends after step_limit. For one thread.
class StartedProgram {
  public:
    /// Nothing that the self-test waits for takes longer unless it hangs.
    static constexpr std::chrono::seconds step_limit{10};

    /// Runs the program behind `program` (a file, a memfd) with `arguments`, the first of which names it.
    static Result<StartedProgram> start(int program, std::vector<std::string> arguments);
    StartedProgram(StartedProgram&& other) noexcept;
    StartedProgram& operator=(StartedProgram&&) = delete;
    ~StartedProgram();

    pid_t pid() const { return pid_; }
    /// The next line of its standard output, without the newline. Error: it ended, or said nothing in time.
    Result<std::string> read_line();
    Result<void> write_line(std::string_view line);
    void send_signal(int signal_number) const;
    /// Its standard input ends.
    void end_input() { input_.reset(); }
    /// How it ended, as a shell has it; none when it did not within step_limit.
    std::optional<int> wait();

  private:
    StartedProgram(std::string name, pid_t pid, Fd input, Fd output);

    std::string name_;
    pid_t pid_ = -1;  // -1: it has been waited for
    Fd input_;
    Fd output_;
    std::string text_;  // read and not taken yet
};

}  // namespace memtrace
