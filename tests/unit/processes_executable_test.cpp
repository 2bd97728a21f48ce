// -x: processes of a program, found by name and path; real ones, and made-up entries of /proc for what needs a root.
#include "processes/executable.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "catch.hpp"
#include "processes_test_programs.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

constexpr auto search_path = "/usr/local/bin:/usr/bin:/bin";

/// The program "server", running, of a folder of its own.
class Server {
  public:
    Server() : path_(folder_.compile("server", waiting_program, "")) { start(); }
    void start() {
        running_.emplace(path_);
        REQUIRE(running_->read_line() == "ready");
    }
    pid_t pid() const { return running_->pid(); }
    const std::string& path() const { return path_; }
    const TemporaryFolder& folder() const { return folder_; }
    void end() { running_->end(); }

  private:
    TemporaryFolder folder_;
    std::string path_;
    std::optional<RunningProgram> running_;
};

bool is_found(const Executable& executable, pid_t pid) {
    const std::vector<pid_t> found = executable.find();
    const bool is_in = std::find(found.begin(), found.end(), pid) != found.end();
    CHECK(is_in == executable.matches(pid));
    return is_in;
}

bool is_found(const std::string& text, pid_t pid) {
    return is_found(Executable(text, search_path), pid);
}

/// One made-up process, 77, of a made-up /proc.
class MadeUpProcess {
  public:
    MadeUpProcess(const std::string& root, const std::string& exe, const std::string& comm,
                  const std::vector<std::string>& arguments) {
        std::filesystem::create_directories(folder_ / "77");
        std::filesystem::create_symlink(exe, folder_ / "77/exe");
        std::filesystem::create_symlink(root, folder_ / "77/root");
        std::filesystem::create_symlink(root == "/" ? "/" : root, folder_ / "77/cwd");
        folder_.write("77/comm", comm + "\n");
        std::string cmdline;
        for (const std::string& argument : arguments)
            cmdline += argument + '\0';
        folder_.write("77/cmdline", cmdline);
    }
    bool matches(const std::string& text, const std::string& path = search_path) const {
        return Executable(text, path, folder_ / ".").matches(77);
    }

  private:
    TemporaryFolder folder_;
};

}  // namespace

TEST_CASE("a program is found by name, by path and through links", "[processes][executable]") {
    const Server server;
    std::filesystem::create_symlink(server.path(), server.folder() / "link");
    std::filesystem::create_hard_link(server.path(), server.folder() / "hard");
    CHECK(is_found("server", server.pid()));
    CHECK(is_found(server.path(), server.pid()));
    CHECK(is_found(server.folder() / "link", server.pid()));
    CHECK(is_found(server.folder() / "./../" +
                       std::filesystem::path(server.folder() / ".").parent_path().filename().string() + "/link",
                   server.pid()));
    CHECK(is_found(server.folder() / "hard", server.pid()));
    CHECK(is_found(std::filesystem::relative(server.path()).string(), server.pid()));
    CHECK_FALSE(is_found("serve", server.pid()));
    CHECK_FALSE(is_found("link", server.pid()));
    CHECK_FALSE(is_found(server.folder() / "other", server.pid()));
    CHECK_FALSE(is_found("/usr/bin/server", server.pid()));
}

TEST_CASE("a name is also what $PATH has under it", "[processes][executable]") {
    const Server server;
    std::filesystem::create_symlink(server.path(), server.folder() / "link");
    const std::string folder = std::filesystem::path(server.path()).parent_path().string();
    CHECK(is_found(Executable("link", "/nonexistent::" + folder + ":/bin"), server.pid()));
    CHECK_FALSE(is_found(Executable("link", "/bin"), server.pid()));
}

TEST_CASE("a program is found after its file was removed or replaced", "[processes][executable]") {
    Server server;
    const std::string copy = server.folder() / "copy";
    std::filesystem::copy(server.path(), copy);
    std::filesystem::remove(server.path());
    CHECK(is_found("server", server.pid()));
    CHECK(is_found(server.path(), server.pid()));
    std::filesystem::rename(copy, server.path());
    RunningProgram replacement(server.path());
    REQUIRE(replacement.read_line() == "ready");
    const Executable by_path(server.path(), search_path);
    CHECK(by_path.matches(server.pid()));
    CHECK(by_path.matches(replacement.pid()));
    CHECK_FALSE(is_found("server (deleted)", server.pid()));
}

TEST_CASE("a script is found by its own name, and its reader is not", "[processes][executable]") {
    const TemporaryFolder folder;
    const std::string script = folder.write_script("job", "#!/bin/sh\necho ready\nread line\n");
    const std::string by_env = folder.write_script(
        "task.py", "#!/usr/bin/env python3\nimport sys\nprint('ready', flush=True)\nsys.stdin.readline()\n");
    RunningProgram shell(script);
    RunningProgram python(by_env);
    REQUIRE(shell.read_line() == "ready");
    REQUIRE(python.read_line() == "ready");
    CHECK(is_found("job", shell.pid()));
    CHECK(is_found(script, shell.pid()));
    CHECK(is_found("sh", shell.pid()));
    CHECK(is_found("task.py", python.pid()));
    CHECK(is_found(by_env, python.pid()));
    CHECK(is_found("python3", python.pid()));
    CHECK_FALSE(is_found("job", python.pid()));
    CHECK_FALSE(is_found(by_env, shell.pid()));

    const MadeUpProcess reader("/", "/usr/bin/less", "less", {"less", script});
    CHECK_FALSE(reader.matches("job"));
    CHECK_FALSE(reader.matches(script));
    const MadeUpProcess with_options("/", "/bin/sh", "sh", {"sh", "-e", script, "argument"});
    CHECK(with_options.matches("job"));
    CHECK(with_options.matches(script));
    CHECK_FALSE(with_options.matches("argument"));
}

TEST_CASE("of a program that is many the name it was called by counts", "[processes][executable]") {
    const TemporaryFolder folder;
    const std::string busybox = folder.write_script("busybox", "");
    std::filesystem::create_symlink("busybox", folder / "ls");
    std::filesystem::create_symlink("busybox", folder / "cat");
    const MadeUpProcess by_link("/", busybox, "ls", {"/bin/ls", "-l"});
    const MadeUpProcess by_argument("/", busybox, "busybox", {"busybox", "ls"});
    for (const MadeUpProcess* process : {&by_link, &by_argument}) {
        CHECK(process->matches("ls"));
        CHECK(process->matches(folder / "ls"));
        CHECK(process->matches("busybox"));
        CHECK(process->matches(busybox));
        CHECK_FALSE(process->matches("cat"));
        CHECK_FALSE(process->matches(folder / "cat"));
    }
}

TEST_CASE("a path is that of the process's own root as well", "[processes][executable]") {
    const TemporaryFolder root;
    std::filesystem::create_directories(root / "opt/real");
    const std::string program = root.write_script("opt/real/app", "");
    std::filesystem::create_symlink("/opt/real", root / "opt/current");  // absolute: of that root, not of ours
    const MadeUpProcess process(root / ".", program, "app", {"app"});
    CHECK(process.matches("/opt/real/app"));
    CHECK(process.matches("/opt/current/app"));
    CHECK(process.matches(program));
    CHECK_FALSE(process.matches("/opt/app"));
    CHECK_FALSE(process.matches("/real/app"));
}

TEST_CASE("long names match by what comm has no room for", "[processes][executable]") {
    const MadeUpProcess process("/", "/usr/bin/true", "a-very-long-nam", {"/x/a-very-long-name-indeed"});
    CHECK(process.matches("a-very-long-name-indeed"));
    CHECK_FALSE(process.matches("a-very-long-name-in-truth"));
    CHECK(process.matches("a-very-long-nam"));
}

TEST_CASE("what has ended and the kernel's threads match nothing, but an exec was still seen",
          "[processes][executable]") {
    Server server;
    const pid_t pid = server.pid();
    CHECK(Executable("server", search_path).matches(ExecutedFile{pid, "irrelevant"}));
    server.end();
    const Executable by_name("server", search_path);
    const Executable by_path(server.path(), search_path);
    CHECK_FALSE(by_name.matches(pid));
    CHECK_FALSE(by_path.matches(pid));
    CHECK(by_name.matches(ExecutedFile{pid, "./server"}));
    CHECK(by_path.matches(ExecutedFile{pid, server.path()}));
    CHECK_FALSE(by_path.matches(ExecutedFile{pid, "/bin/sh"}));
    CHECK_FALSE(by_name.matches(ExecutedFile{pid, "/bin/server2"}));
    CHECK_FALSE(Executable("kthreadd", search_path).matches(2));
}

TEST_CASE("a process reads as the program it runs, whatever bytes it is called by", "[processes][executable]") {
    const TemporaryFolder folder;
    const std::string program = folder.compile("server", waiting_program, "");
    const std::string odd = folder / "a \n\xff\xfe";
    std::filesystem::copy(program, odd);
    RunningProgram running(odd);
    REQUIRE(running.read_line() == "ready");
    CHECK(is_found("a \n\xff\xfe", running.pid()));
    CHECK(is_found(odd, running.pid()));
}
