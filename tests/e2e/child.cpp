#include "e2e/child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <stdexcept>
#include <thread>

namespace memtrace::e2e {
namespace {

struct Pipe {
    Fd read_end;
    Fd write_end;
};

Pipe make_pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    return {Fd(ends[0]), Fd(ends[1])};
}

/// In the new child: never returns.
[[noreturn]] void become(std::vector<std::string>& arguments, std::vector<std::string>& environment, int input,
                         int output, int errors) {
    dup2(input, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(errors, STDERR_FILENO);
    for (std::string& variable : environment)
        putenv(variable.data());
    std::vector<char*> pointers;
    for (std::string& argument : arguments)
        pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    execvp(pointers[0], pointers.data());
    _exit(127);
}

/// False when the stream has ended.
bool read_some(Fd& fd, std::string& text) {
    std::array<char, 65536> bytes;
    const ssize_t count = ::read(fd.get(), bytes.data(), bytes.size());
    if (count > 0) text.append(bytes.data(), static_cast<size_t>(count));
    if (count == 0) fd.reset();
    return count > 0 || (count < 0 && errno == EINTR);
}

}  // namespace

Child::Child(std::vector<std::string> arguments, std::vector<std::string> environment) : name_(arguments.at(0)) {
    Pipe input = make_pipe();
    Pipe output = make_pipe();
    Pipe errors = make_pipe();
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error("no process for " + name_);
    if (pid_ == 0) become(arguments, environment, input.read_end.get(), output.write_end.get(), errors.write_end.get());
    input_ = std::move(input.write_end);
    output_.fd = std::move(output.read_end);
    errors_.fd = std::move(errors.read_end);
}

Child::~Child() {
    if (status_) return;
    kill(pid_, SIGKILL);
    reap(0);
}

void Child::fail(const std::string& what) const {
    throw std::runtime_error(name_ + ": " + what + "\nstdout ended with: " +
                             output_.text.substr(output_.text.size() - std::min<size_t>(output_.text.size(), 500)) +
                             "\nstderr: " + errors_.text.substr(0, 2000));
}

void Child::write_line(std::string_view line) {
    const std::string text = std::string(line) + "\n";
    if (::write(input_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) fail("takes no input");
}

void Child::send_signal(int signal_number) {
    if (status_ || kill(pid_, signal_number) != 0) fail("has ended before a signal could be sent");
}

bool Child::pump_until(const std::function<bool()>& is_done, Clock::time_point deadline) {
    while (!is_done()) {
        if (!output_.fd && !errors_.fd) return false;
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
        if (left <= 0) return false;
        std::array<pollfd, 2> polled = {pollfd{output_.fd.get(), POLLIN, 0}, pollfd{errors_.fd.get(), POLLIN, 0}};
        poll(polled.data(), polled.size(), static_cast<int>(left));
        if (polled[0].revents != 0) read_some(output_.fd, output_.text);
        if (polled[1].revents != 0) read_some(errors_.fd, errors_.text);
    }
    return true;
}

std::optional<std::string> Child::read_line_or_end() {
    const auto has_line = [this] { return output_.text.find('\n', read_position_) != std::string::npos; };
    const auto is_done = [&] { return has_line() || !output_.fd; };
    if (!pump_until(is_done, Clock::now() + step_limit) && output_.fd) fail("no line of output in time");
    if (!has_line()) return std::nullopt;
    const size_t end = output_.text.find('\n', read_position_);
    std::string line = output_.text.substr(read_position_, end - read_position_);
    read_position_ = end + 1;
    return line;
}

std::string Child::read_line() {
    std::optional<std::string> line = read_line_or_end();
    if (!line) fail("its output ended, status " + std::to_string(wait()));
    return *std::move(line);
}

bool Child::wait_for_error_text(std::string_view text, std::chrono::milliseconds limit) {
    const auto has_text = [&] { return errors_.text.find(text) != std::string::npos; };
    pump_until([&] { return has_text() || !errors_.fd; }, Clock::now() + limit);
    return has_text();
}

void Child::reap(int flags) {
    int raw = 0;
    if (status_ || waitpid(pid_, &raw, flags) != pid_) return;
    status_ = WIFSIGNALED(raw) ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw);
}

bool Child::is_running() {
    reap(WNOHANG);
    return !status_;
}

int Child::wait() {
    const auto deadline = Clock::now() + step_limit;
    // A grandchild may hold the pipes open, so the end of the streams alone does not tell.
    while (is_running() && Clock::now() < deadline)
        pump_until([] { return false; }, Clock::now() + std::chrono::milliseconds(5));
    if (!status_) fail("does not end");
    pump_until([] { return false; }, Clock::now() + std::chrono::milliseconds(200));
    return *status_;
}

Finished run_to_end(std::vector<std::string> arguments, std::vector<std::string> environment) {
    Child child(std::move(arguments), std::move(environment));
    const int status = child.wait();
    return {status, child.output(), child.errors()};
}

}  // namespace memtrace::e2e
