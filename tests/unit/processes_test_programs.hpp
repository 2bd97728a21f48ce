// Small programs that tests of processes and symbols compile and run. Uses base only.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "base/fd.hpp"

namespace memtrace::test {

/// Says that it runs, and runs until it reads something.
constexpr auto waiting_program = R"(
#include <cstdio>
int main() { std::puts("ready"); std::fflush(stdout); return std::getchar(); }
)";

/// A folder that is removed with all it holds.
class TemporaryFolder {
  public:
    TemporaryFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "memtrace-test-XXXXXX").string();
        if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp failed");
        path_ = name;
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    std::string operator/(const std::string& name) const { return path_ + "/" + name; }

    std::string write(const std::string& name, const std::string& content) const {
        std::ofstream(*this / name, std::ios::binary) << content;
        return *this / name;
    }
    std::string write_script(const std::string& name, const std::string& content) const {
        const std::string path = write(name, content);
        std::filesystem::permissions(path, std::filesystem::perms::owner_all);
        return path;
    }
    /// Compiles C++ `source` (kept as NAME.cc) to NAME.
    std::string compile(const std::string& name, const std::string& source, const std::string& flags) const {
        write(name + ".cc", source);
        run(fmt::format("cd {0} && g++ {2} -o '{1}' '{1}.cc' -ldl", path_, name, flags));
        return *this / name;
    }
    static void run(const std::string& command) {
        if (std::system(command.c_str()) != 0) throw std::runtime_error("failed: " + command);
    }

  private:
    std::string path_;
};

/// A program that runs until this ends, and whose lines can be read and answered.
class RunningProgram {
  public:
    explicit RunningProgram(const std::string& path) {
        int output[2], input[2];
        if (::pipe2(output, O_CLOEXEC) != 0 || ::pipe2(input, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
        pid_ = ::fork();
        if (pid_ == 0) {
            ::dup2(output[1], 1);
            ::dup2(input[0], 0);
            ::execl(path.c_str(), path.c_str(), nullptr);
            ::_exit(127);
        }
        output_ = Fd(output[0]);
        input_ = Fd(input[1]);
        ::close(output[1]);
        ::close(input[0]);
    }
    RunningProgram(const RunningProgram&) = delete;
    RunningProgram& operator=(const RunningProgram&) = delete;
    ~RunningProgram() { end(); }

    pid_t pid() const { return pid_; }
    std::string read_line() {
        std::string line;
        for (char byte = 0; ::read(output_.get(), &byte, 1) == 1 && byte != '\n';)
            line += byte;
        return line;
    }
    uint64_t read_number() { return std::stoull(read_line(), nullptr, 0); }
    void write_line() {
        if (::write(input_.get(), "\n", 1) != 1) throw std::runtime_error("the program has ended");
    }
    void end() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        pid_ = 0;
    }

  private:
    pid_t pid_ = 0;
    Fd output_, input_;
};

}  // namespace memtrace::test
