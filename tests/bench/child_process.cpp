#include "bench/child_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace memtrace {
namespace {

struct Pipe {
    Fd read_end;
    Fd write_end;
};

Result<Pipe> make_pipe() {
    std::array<int, 2> fds{};
    if (pipe2(fds.data(), O_CLOEXEC) != 0) return Error{"cannot make a pipe", errno_text(errno)};
    return Pipe{Fd(fds[0]), Fd(fds[1])};
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    for (std::string& text : texts)
        pointers.push_back(text.data());
    pointers.push_back(nullptr);
    return pointers;
}

}  // namespace

ChildProcess::ChildProcess(pid_t pid, Fd input, Fd output)
    : pid_(pid), input_(std::move(input)), output_(std::move(output)) {}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), input_(std::move(other.input_)), output_(std::move(other.output_)) {}

ChildProcess::~ChildProcess() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    wait();
}

Result<ChildProcess> ChildProcess::start(const std::vector<std::string>& arguments,
                                         const std::vector<std::string>& variables) {
    Result<Pipe> input = make_pipe();
    if (!input) return input.error();
    Result<Pipe> output = make_pipe();
    if (!output) return output.error();

    std::vector<std::string> argument_texts = arguments;
    std::vector<std::string> environment_texts = variables;
    for (char** variable = environ; *variable; ++variable)
        environment_texts.emplace_back(*variable);
    const std::vector<char*> argument_pointers = pointers_to(argument_texts);
    const std::vector<char*> environment_pointers = pointers_to(environment_texts);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input->read_end.get(), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output->write_end.get(), STDOUT_FILENO);
    pid_t pid = 0;
    const int error = posix_spawn(&pid, arguments[0].c_str(), &actions, nullptr, argument_pointers.data(),
                                  environment_pointers.data());
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) return Error{"cannot start " + arguments[0], errno_text(error)};
    return ChildProcess(pid, std::move(input->write_end), std::move(output->read_end));
}

bool ChildProcess::read_until(std::string_view part) {
    std::string text;
    std::array<char, 65536> bytes{};
    while (true) {
        const ssize_t count = read(output(), bytes.data(), bytes.size());
        if (count <= 0) return false;
        text.append(bytes.data(), static_cast<size_t>(count));
        if (text.find(part) != std::string::npos && text.ends_with('\n')) return true;
    }
}

int ChildProcess::wait() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace memtrace
