#include <sys/prctl.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "catch.hpp"
#include "processes/process.hpp"
#include "processes_test_programs.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

/// A child with the name `comm`, which it shows from the time that this returns.
pid_t child_with_name(const char* comm) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
        ::prctl(PR_SET_NAME, comm);
        if (::write(ends[1], "", 1) != 1) ::_exit(1);
        ::pause();
        ::_exit(0);
    }
    char byte = 1;
    REQUIRE(::read(ends[0], &byte, 1) == 1);
    ::close(ends[0]);
    ::close(ends[1]);
    return pid;
}

void end_child(pid_t pid) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
}

}  // namespace

TEST_CASE("a process can read what it is itself", "[processes]") {
    const auto self = read_process(::getpid());
    REQUIRE(self);
    CHECK(self->pid == ::getpid());
    CHECK(self->ppid == ::getppid());
    CHECK(self->exe == std::filesystem::read_symlink("/proc/self/exe").string());
    CHECK_FALSE(self->is_exe_deleted);
    CHECK_FALSE(self->is_kernel_thread);
    CHECK(self->start_time > 0);
}

TEST_CASE("a name with parentheses, spaces and newlines does not shift the fields after it", "[processes]") {
    for (const char* comm : {") R 1 1 (", "a\nb", ")", "\xff\x01 x"}) {
        const pid_t pid = child_with_name(comm);
        const auto process = read_process(pid);
        end_child(pid);
        REQUIRE(process);
        CHECK(process->comm == comm);
        CHECK(process->ppid == ::getpid());
        CHECK_FALSE(process->is_kernel_thread);
    }
}

TEST_CASE("a kernel thread is known as one", "[processes]") {
    const auto process = read_process(2);
    if (!process || process->comm != "kthreadd") {
        WARN("skipped: pid 2 is not kthreadd here");
        return;
    }
    CHECK(process->is_kernel_thread);
    CHECK(process->exe.empty());
}

TEST_CASE("a process that has ended is no such target", "[processes]") {
    const pid_t pid = child_with_name("short");
    end_child(pid);
    for (const pid_t missing : {pid, 0, -1}) {
        const auto process = read_process(missing);
        REQUIRE_FALSE(process);
        CHECK(process.error().status == ExitStatus::no_such_target);
        CHECK(process.error().why == "no such process");
        CHECK_FALSE(process.error().hint.empty());
    }
    CHECK_FALSE(read_rss_bytes(pid));
}

TEST_CASE("a program whose file was removed is told from one that is called so", "[processes]") {
    const TemporaryFolder folder;
    const std::string removed = folder.compile("removed", waiting_program, "");
    const std::string odd = folder / "odd (deleted)";
    std::filesystem::copy(removed, odd);
    RunningProgram removed_program(removed);
    RunningProgram odd_program(odd);
    CHECK(removed_program.read_line() == "ready");
    CHECK(odd_program.read_line() == "ready");
    std::filesystem::remove(removed);

    const auto of_removed = read_process(removed_program.pid());
    const auto of_odd = read_process(odd_program.pid());
    REQUIRE(of_removed);
    REQUIRE(of_odd);
    CHECK(of_removed->exe == removed);
    CHECK(of_removed->is_exe_deleted);
    CHECK(of_odd->exe == odd);
    CHECK_FALSE(of_odd->is_exe_deleted);
}

TEST_CASE("resident memory grows by what is touched", "[processes]") {
    constexpr size_t size = 64 << 20;
    const auto before = read_rss_bytes(::getpid());
    const std::vector<char> touched(size, 1);
    const auto after = read_rss_bytes(::getpid());
    REQUIRE(before);
    REQUIRE(after);
    CHECK(*after > *before + size - (8 << 20));
    CHECK(touched.back() == 1);
}

TEST_CASE("programs are the same by their file's name, a replaced file's too, or by comm", "[processes]") {
    const TemporaryFolder folder;
    const std::string program = folder.compile("server", waiting_program, "");
    std::filesystem::create_directory(folder / "new");
    std::filesystem::copy(program, folder / "new/server");
    std::filesystem::copy(program, folder / "other");
    RunningProgram one(program);
    RunningProgram other_copy(folder / "new/server");
    RunningProgram other(folder / "other");
    for (RunningProgram* running : {&one, &other_copy, &other})
        REQUIRE(running->read_line() == "ready");
    std::filesystem::remove(program);

    CHECK(run_same_program(one.pid(), other_copy.pid()));
    CHECK_FALSE(run_same_program(one.pid(), other.pid()));
    CHECK_FALSE(run_same_program(one.pid(), 2));
    const pid_t ended = other_copy.pid();
    other_copy.end();
    CHECK_FALSE(run_same_program(one.pid(), ended));
    CHECK_FALSE(run_same_program(ended, one.pid()));
}
