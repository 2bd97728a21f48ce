#include "tracing/command.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

namespace memtrace {
namespace {

struct Pipe {
    Fd read_end;
    Fd write_end;
};

Result<Pipe> make_pipe() {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) return Error{"cannot make a pipe", errno_text(errno)};
    return Pipe{Fd(fds[0]), Fd(fds[1])};
}

/// What the child does; only async-signal-safe calls, since the parent may have had threads.
[[noreturn]] void wait_and_exec(int go, int exec_error, const char* path, char* const* arguments) {
    char byte = 0;
    ssize_t got = 0;
    do
        got = read(go, &byte, 1);
    while (got < 0 && errno == EINTR);
    if (got != 1) _exit(EXIT_FAILURE);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    signal(SIGPIPE, SIG_DFL);
    execv(path, arguments);
    const int error_number = errno;
    [[maybe_unused]] ssize_t ignored = write(exec_error, &error_number, sizeof error_number);
    _exit(EXIT_FAILURE);
}

}  // namespace

Result<Command> Command::prepare(const std::string& path, const std::vector<std::string>& arguments) {
    auto go = make_pipe();
    if (!go) return std::move(go).error();
    auto exec_error = make_pipe();
    if (!exec_error) return std::move(exec_error).error();
    std::vector<char*> argument_pointers;
    for (const std::string& argument : arguments)
        argument_pointers.push_back(const_cast<char*>(argument.c_str()));
    argument_pointers.push_back(nullptr);
    const pid_t pid = fork();
    if (pid < 0) return Error{"cannot start " + path, errno_text(errno)};
    if (pid == 0) {
        // The child's own copy of the write end would keep it waiting when memtrace dies.
        go->write_end.reset();
        wait_and_exec(go->read_end.get(), exec_error->write_end.get(), path.c_str(), argument_pointers.data());
    }
    return Command(pid, std::move(go->write_end), std::move(exec_error->read_end), path);
}

Result<void> Command::run() {
    const char byte = 1;
    if (write(go_.get(), &byte, 1) != 1) return Error{"cannot start " + path_, errno_text(errno)};
    go_.reset();
    int error_number = 0;
    ssize_t got = 0;
    // The child's end closes with the exec; what comes instead is why there was none.
    do
        got = read(exec_error_.get(), &error_number, sizeof error_number);
    while (got < 0 && errno == EINTR);
    exec_error_.reset();
    if (got == sizeof error_number) return Error{"cannot run " + path_, errno_text(error_number)};
    return {};
}

}  // namespace memtrace
