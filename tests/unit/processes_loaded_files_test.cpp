#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "catch.hpp"
#include "processes/child_output.hpp"
#include "processes/loaded_files.hpp"
#include "processes_test_programs.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

/// NAME=VALUE strings as an environ.
class Environment {
  public:
    explicit Environment(std::vector<std::string> variables) : variables_(std::move(variables)) {
        for (std::string& variable : variables_)
            pointers_.push_back(variable.data());
        pointers_.push_back(nullptr);
    }
    Environment(const Environment&) = delete;
    Environment& operator=(const Environment&) = delete;
    char* const* get() const { return pointers_.data(); }

  private:
    std::vector<std::string> variables_;
    std::vector<char*> pointers_;
};

bool holds(const std::vector<std::string>& paths, const std::string& path) {
    return std::find(paths.begin(), paths.end(), path) != paths.end();
}

bool holds_name(const std::vector<std::string>& paths, const std::string& name) {
    return std::any_of(paths.begin(), paths.end(), [&](const std::string& path) { return path.ends_with("/" + name); });
}

const Environment usual({"PATH=/usr/bin:/bin"});

}  // namespace

TEST_CASE("commands are found as execvp finds them", "[processes]") {
    const TemporaryFolder folder;
    std::filesystem::create_directories(folder / "a/tool");
    std::filesystem::create_directories(folder / "b");
    folder.write("b/data", "x");
    folder.write_script("b/tool", "#!/bin/sh\n");
    const Environment environment({"PATHS=/x", "PATH=/nonexistent:" + folder / "a" + ":" + folder / "b"});

    CHECK(find_command("tool", environment.get()).path == folder / "b/tool");
    CHECK(find_command("tool", environment.get()).status == CommandStatus::found);
    CHECK(find_command("data", environment.get()).status == CommandStatus::not_executable);
    CHECK(find_command("nothing", environment.get()).status == CommandStatus::not_found);
    CHECK(find_command("", environment.get()).status == CommandStatus::not_found);
    CHECK(find_command(folder / "b/tool", environment.get()).path == folder / "b/tool");
    CHECK(find_command(folder / "b/data", environment.get()).status == CommandStatus::not_executable);
    CHECK(find_command(folder / "b", environment.get()).status == CommandStatus::not_executable);
    CHECK(find_command("./nothing", environment.get()).status == CommandStatus::not_found);
    CHECK(find_command("sh", Environment({}).get()).path == "/bin/sh");
    CHECK(static_cast<int>(CommandStatus::not_found) == 127);
    CHECK(command_error("nothing", CommandStatus::not_found).why == "not found");
    CHECK(command_error("data", CommandStatus::not_executable).why == "permission denied");
}

TEST_CASE("a program loads its loader and its libraries", "[processes]") {
    const auto files = files_loaded_by("/bin/sh", usual.get());
    REQUIRE(files);
    CHECK(files->front() == "/bin/sh");
    CHECK(holds_name(*files, "ld-linux-x86-64.so.2"));
    CHECK(holds_name(*files, "libc.so.6"));
    auto sorted = *files;
    std::sort(sorted.begin(), sorted.end());
    CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end());
}

TEST_CASE("the environment of the command counts", "[processes]") {
    const TemporaryFolder folder;
    std::filesystem::create_directory(folder / "lib dir");
    folder.compile("preloaded.so", "int preloaded;", "-shared -fPIC");
    folder.compile("lib dir/libfar.so", "int far_away() { return 1; }", "-shared -fPIC");
    const std::string program = folder.compile("program", "int far_away(); int main() { return far_away(); }",
                                               "-Wl,--no-as-needed -L'" + folder / "lib dir" + "' -lfar");
    const auto without = files_loaded_by(program, usual.get());
    REQUIRE(without);
    CHECK_FALSE(holds_name(*without, "libfar.so"));
    const Environment environment({"LD_LIBRARY_PATH=" + folder / "lib dir", "LD_PRELOAD=" + folder / "preloaded.so"});
    const auto with = files_loaded_by(program, environment.get());
    REQUIRE(with);
    CHECK(holds(*with, folder / "lib dir/libfar.so"));
    CHECK(holds(*with, folder / "preloaded.so"));
}

TEST_CASE("a static program loads itself alone", "[processes]") {
    const TemporaryFolder folder;
    const std::string program = folder.compile("static", "int main() {}", "-static");
    const auto files = files_loaded_by(program, usual.get());
    REQUIRE(files);
    CHECK(*files == std::vector<std::string>{program});
}

TEST_CASE("scripts lead to their interpreters", "[processes]") {
    const TemporaryFolder folder;
    const std::string inner = folder.write_script("inner", "#! \t/bin/sh -e\n");
    const std::string outer = folder.write_script("outer", "#!" + inner + " x");
    const auto files = files_loaded_by(outer, usual.get());
    REQUIRE(files);
    CHECK((*files)[0] == outer);
    CHECK((*files)[1] == inner);
    CHECK(holds(*files, "/bin/sh"));
    CHECK(holds_name(*files, "libc.so.6"));

    const auto by_env = files_loaded_by(folder.write_script("env", "#!/usr/bin/env -S A=1 bash -u\n"), usual.get());
    REQUIRE(by_env);
    CHECK(holds(*by_env, "/usr/bin/env"));
    CHECK(holds(*by_env, "/usr/bin/bash"));

    const auto plain = files_loaded_by(folder.write_script("plain", "echo hello\n"), usual.get());
    REQUIRE(plain);
    CHECK(holds(*plain, "/bin/sh"));
}

TEST_CASE("what cannot be loaded is an error", "[processes]") {
    const TemporaryFolder folder;
    const std::string missing = folder.write_script("missing", "#!/nonexistent/interpreter\n");
    CHECK_THAT(files_loaded_by(missing, usual.get()).error().what, ContainsSubstring("/nonexistent/interpreter"));
    CHECK_FALSE(files_loaded_by(folder.write("cut",
                                             "\x7f"
                                             "ELF"),
                                usual.get()));
    std::string narrow(
        "\x7f"
        "ELF\x01\x01\x01",
        7);
    narrow.resize(200, '\0');
    CHECK_THAT(files_loaded_by(folder.write("narrow", narrow), usual.get()).error().why, ContainsSubstring("64-bit"));
    std::string last;
    for (int i = 0; i < 9; ++i)
        last = folder.write_script("s" + std::to_string(i), "#!" + (i ? last : "/bin/sh") + "\n");
    CHECK_THAT(files_loaded_by(last, usual.get()).error().why, ContainsSubstring("more than 5"));
}

TEST_CASE("a helper program's output is bounded in size and time", "[processes]") {
    const auto output = output_of({"/bin/sh", "-c", "echo out; echo no >&2; exit 3"}, usual.get(), 5000);
    REQUIRE(output);
    CHECK(output->text == "out\n");
    CHECK(output->exit_status == 3);
    CHECK(output_of({"/bin/sh", "-c", "kill -9 $$"}, usual.get(), 5000)->exit_status == 137);
    CHECK_THAT(output_of({"/bin/cat", "/dev/zero"}, usual.get(), 5000).error().why, ContainsSubstring("1 MiB"));
    CHECK_THAT(output_of({"/bin/sleep", "60"}, usual.get(), 50).error().why, ContainsSubstring("in time"));
    CHECK_THAT(output_of({"/bin/sh", "-c", "exec >&-; sleep 60"}, usual.get(), 50).error().why,
               ContainsSubstring("in time"));
    CHECK_FALSE(output_of({"/nonexistent"}, usual.get(), 50));
    CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
}
