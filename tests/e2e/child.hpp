// A child process with its three streams in pipes. Every wait has a deadline; whatever goes wrong throws, which fails
// the test, and the destructor ends and reaps the child. Uses base/fd.hpp.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"

namespace memtrace::e2e {

/// No step of a test takes longer unless it hangs.
constexpr std::chrono::seconds step_limit{60};

class Child {
  public:
    /// Starts arguments[0] (found on PATH) with `environment` ("NAME=VALUE") added to our own.
    explicit Child(std::vector<std::string> arguments, std::vector<std::string> environment = {});
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    ~Child();

    pid_t pid() const { return pid_; }
    void write_line(std::string_view line);
    void send_signal(int signal_number);
    /// The next line of stdout, without its newline.
    std::string read_line();
    /// The next line of stdout, or nothing when stdout has ended.
    std::optional<std::string> read_line_or_end();
    /// Waits until stderr holds `text`; nothing is consumed. False when stderr ends or `limit` passes before.
    bool wait_for_error_text(std::string_view text, std::chrono::milliseconds limit = step_limit);
    /// Waits for its end. The exit status, or 128 + n when signal n ended it.
    int wait();
    bool is_running();
    /// Everything that came so far; all of it after wait().
    const std::string& output() const { return output_.text; }
    const std::string& errors() const { return errors_.text; }

  private:
    struct Stream {
        Fd fd;
        std::string text;
    };
    using Clock = std::chrono::steady_clock;

    /// Moves what the pipes hold into the buffers until `is_done` or both have ended or `deadline` passes.
    bool pump_until(const std::function<bool()>& is_done, Clock::time_point deadline);
    void reap(int flags);
    [[noreturn]] void fail(const std::string& what) const;

    std::string name_;
    pid_t pid_ = -1;
    Fd input_;
    Stream output_;
    Stream errors_;
    size_t read_position_ = 0;
    std::optional<int> status_;
};

/// Runs a program to its end.
struct Finished {
    int status = 0;
    std::string output;
    std::string errors;
};
Finished run_to_end(std::vector<std::string> arguments, std::vector<std::string> environment = {});

}  // namespace memtrace::e2e
