#include "processes/child_output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "base/fd.hpp"
#include "base/text.hpp"

namespace memtrace {
namespace {

constexpr size_t output_limit_bytes = 1 << 20;
using Clock = std::chrono::steady_clock;

/// A child that is killed and waited for at the latest when it goes out of scope.
class Child {
  public:
    explicit Child(pid_t pid) : pid_(pid) {}
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    ~Child() {
        if (pid_ > 0) {
            ::kill(pid_, SIGKILL);
            wait(0);
        }
    }
    /// True when it has ended; with WNOHANG in `options` it may be false.
    bool wait(int options) {
        int status = 0;
        pid_t waited = 0;
        do
            waited = ::waitpid(pid_, &status, options);
        while (waited < 0 && errno == EINTR);
        if (waited == 0) return false;
        pid_ = 0;
        exit_status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        return true;
    }
    int exit_status() const { return exit_status_; }

  private:
    pid_t pid_;
    int exit_status_ = 0;
};

int spawn(const std::vector<std::string>& arguments, char* const* environment, int output_fd, pid_t& pid) {
    std::vector<char*> pointers;
    for (const std::string& argument : arguments)
        pointers.push_back(const_cast<char*>(argument.c_str()));
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, output_fd, STDOUT_FILENO);
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    const int error_number = ::posix_spawn(&pid, pointers[0], &actions, nullptr, pointers.data(), environment);
    ::posix_spawn_file_actions_destroy(&actions);
    return error_number;
}

int milliseconds_until(Clock::time_point deadline) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    return static_cast<int>(std::max<int64_t>(left, 0));
}

/// Reads to the end of `fd`; otherwise says why not.
std::string read_to_end(int fd, Clock::time_point deadline, std::string& text) {
    char chunk[4096];
    for (;;) {
        pollfd wanted{fd, POLLIN, 0};
        const int ready = ::poll(&wanted, 1, milliseconds_until(deadline));
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return ready < 0 ? errno_text(errno) : "did not end in time";
        const ssize_t got = ::read(fd, chunk, sizeof(chunk));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno_text(errno);
        if (got == 0) return {};
        text.append(chunk, static_cast<size_t>(got));
        if (text.size() > output_limit_bytes) return "printed more than 1 MiB";
    }
}

}  // namespace

Result<ChildOutput> output_of(const std::vector<std::string>& arguments, char* const* environment, int timeout_ms) {
    const std::string what = "running " + printable(arguments[0]);
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return Error{what, errno_text(errno)};
    const Fd read_end(ends[0]);
    Fd write_end(ends[1]);
    pid_t pid = 0;
    const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
    if (const int error_number = spawn(arguments, environment, write_end.get(), pid))
        return Error{what, errno_text(error_number)};
    Child child(pid);
    write_end.reset();

    ChildOutput output;
    if (std::string why = read_to_end(read_end.get(), deadline, output.text); !why.empty())
        return Error{what, std::move(why)};
    while (!child.wait(WNOHANG)) {
        if (milliseconds_until(deadline) == 0) return Error{what, "did not end in time"};
        ::poll(nullptr, 0, 1);
    }
    output.exit_status = child.exit_status();
    return output;
}

}  // namespace memtrace
