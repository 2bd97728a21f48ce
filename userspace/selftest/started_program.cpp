#include "selftest/started_program.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

namespace memtrace {
namespace {

using Clock = std::chrono::steady_clock;

int milliseconds_until(Clock::time_point deadline) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    return static_cast<int>(std::max<int64_t>(left, 0));
}

[[noreturn]] void become(int program, int input, int output, char* const* arguments) {
    dup2(input, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    fexecve(program, arguments, environ);
    _exit(EXIT_FAILURE);
}

}  // namespace

StartedProgram::StartedProgram(std::string name, pid_t pid, Fd input, Fd output)
    : name_(std::move(name)), pid_(pid), input_(std::move(input)), output_(std::move(output)) {}

StartedProgram::StartedProgram(StartedProgram&& other) noexcept
    : name_(std::move(other.name_)),
      pid_(std::exchange(other.pid_, -1)),
      input_(std::move(other.input_)),
      output_(std::move(other.output_)),
      text_(std::move(other.text_)) {}

StartedProgram::~StartedProgram() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    (void)wait();
}

Result<StartedProgram> StartedProgram::start(int program, std::vector<std::string> arguments) {
    std::array<int, 2> input{};
    std::array<int, 2> output{};
    if (pipe2(input.data(), O_CLOEXEC) != 0) return Error{"cannot make a pipe", errno_text(errno)};
    const Fd input_read(input[0]);
    Fd input_write(input[1]);
    if (pipe2(output.data(), O_CLOEXEC) != 0) return Error{"cannot make a pipe", errno_text(errno)};
    Fd output_read(output[0]);
    const Fd output_write(output[1]);
    std::vector<char*> pointers;
    for (std::string& argument : arguments)
        pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    const pid_t pid = fork();
    if (pid < 0) return Error{"cannot start " + arguments.front(), errno_text(errno)};
    if (pid == 0) become(program, input_read.get(), output_write.get(), pointers.data());
    return StartedProgram(arguments.front(), pid, std::move(input_write), std::move(output_read));
}

Result<std::string> StartedProgram::read_line() {
    const auto deadline = Clock::now() + step_limit;
    size_t end = text_.find('\n');
    while (end == std::string::npos) {
        pollfd wanted{output_.get(), POLLIN, 0};
        const int ready = poll(&wanted, 1, milliseconds_until(deadline));
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return Error{name_, fmt::format("said nothing for {} s", step_limit.count())};
        std::array<char, 65536> bytes;
        const ssize_t got = read(output_.get(), bytes.data(), bytes.size());
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return Error{name_, "ended too early"};
        text_.append(bytes.data(), static_cast<size_t>(got));
        end = text_.find('\n');
    }
    std::string line = text_.substr(0, end);
    text_.erase(0, end + 1);
    return line;
}

Result<void> StartedProgram::write_line(std::string_view line) {
    const std::string text = std::string(line) + '\n';
    if (write(input_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size())) return {};
    return Error{name_, "takes no input: " + errno_text(errno)};
}

void StartedProgram::send_signal(int signal_number) const {
    if (pid_ > 0) kill(pid_, signal_number);
}

std::optional<int> StartedProgram::wait() {
    const auto deadline = Clock::now() + step_limit;
    // Its output ends with it; what it still says is of no interest.
    while (pid_ > 0) {
        int status = 0;
        const pid_t waited = waitpid(pid_, &status, WNOHANG);
        if (waited == pid_) {
            pid_ = -1;
            return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        }
        if (waited < 0 && errno != EINTR) break;
        if (Clock::now() >= deadline) break;
        constexpr int moment_ms = 5;
        (void)poll(nullptr, 0, moment_ms);
    }
    return std::nullopt;
}

}  // namespace memtrace
