// Which processes a command line means: targets that add up, and `-p $(pidof x)` as shells hand it over.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "catch.hpp"
#include "cli/parse.hpp"

using namespace memtrace;

namespace {

using Arguments = std::vector<const char*>;
using Pids = std::vector<pid_t>;
using Words = std::vector<std::string>;

/// 7, 100, 200, 300 and 40 run one program, all others each another one.
bool runs_same_program(pid_t first, pid_t second) {
    constexpr std::array group = {7, 40, 100, 200, 300};
    const auto is_in = [&](pid_t pid) { return std::find(group.begin(), group.end(), pid) != group.end(); };
    return is_in(first) && is_in(second);
}

Result<Request> parse(const Arguments& arguments, const SameProgram& same_program = runs_same_program) {
    return parse_arguments(arguments, same_program);
}

Options options_of(const Arguments& arguments) {
    const Result<Request> request = parse(arguments);
    if (!request) FAIL(request.error().what << ": " << request.error().why);
    REQUIRE(std::holds_alternative<Options>(*request));
    return std::get<Options>(*request);
}

Error error_of(const Arguments& arguments) {
    const Result<Request> request = parse(arguments);
    REQUIRE_FALSE(request);
    CHECK(request.error().status == ExitStatus::usage);
    CHECK_FALSE(request.error().hint.empty());
    return request.error();
}

}  // namespace

TEST_CASE("targets of all kinds add up and each counts once", "[cli][targets]") {
    const Options options = options_of({"-x",
                                        "nginx",
                                        "--exe=/usr/bin/x y",
                                        "-x",
                                        "nginx",
                                        "-p",
                                        "1",
                                        "--cgroup",
                                        "/a",
                                        "--cgroup",
                                        "b/c",
                                        "--container",
                                        "0123456789ab",
                                        "-f",
                                        "-A",
                                        "--from-birth",
                                        "--no-wait",
                                        "2",
                                        "--",
                                        "ls"});
    CHECK(options.executables == Words{"nginx", "/usr/bin/x y"});
    CHECK(options.pids == Pids{1});
    CHECK(options.cgroups == Words{"/a", "b/c"});
    CHECK(options.containers == Words{"0123456789ab"});
    CHECK(options.command == Words{"ls"});
    CHECK(options.follows_children);
    CHECK(options.traces_all);
    CHECK(options.is_from_birth);
    CHECK_FALSE(options.waits_for_targets);
    CHECK(options.interval_ns == 2'000'000'000);
}

TEST_CASE("without these options no target comes later", "[cli][targets]") {
    const Options options = options_of({"-p", "1"});
    CHECK(options.executables.empty());
    CHECK(options.cgroups.empty());
    CHECK(options.containers.empty());
    CHECK_FALSE(options.follows_children);
    CHECK_FALSE(options.traces_all);
    CHECK_FALSE(options.is_from_birth);
    CHECK(options.waits_for_targets);
    CHECK(options.has_targets());
    CHECK_FALSE(options.has_future_targets());
}

TEST_CASE("each kind of target is enough", "[cli][targets]") {
    const std::vector<Arguments> each = {{"-x", "a"}, {"--cgroup", "a"}, {"--container", "a"},
                                         {"-A"},      {"-p", "1", "-f"}, {"-f", "--", "ls"}};
    for (const Arguments& arguments : each) {
        CAPTURE(arguments.front());
        CHECK(options_of(arguments).has_targets());
        CHECK(options_of(arguments).has_future_targets());
    }
}

TEST_CASE("what makes no target is refused", "[cli][targets]") {
    CHECK(error_of({"-x", ""}).what == "--exe ''");
    CHECK(error_of({"-x"}).why == "its value is missing");
    CHECK(error_of({"--cgroup", ""}).what == "--cgroup ''");
    CHECK(error_of({"--container", ""}).what == "--container ''");
    CHECK(error_of({"-f"}).what == "--follow");
    CHECK(error_of({"--no-wait"}).what == "no target");
    CHECK(error_of({"-p", "1", "--from-birth"}).what == "--from-birth");
    CHECK(error_of({"--from-birth", "--", "ls"}).what == "--from-birth");
    CHECK(error_of({"-A=1"}).status == ExitStatus::usage);
}

TEST_CASE("the words of pidof are processes, however many", "[cli][targets]") {
    CHECK(options_of({"-p", "100", "200"}).pids == Pids{100, 200});
    CHECK(options_of({"-p", "100", "200", "300"}).pids == Pids{100, 200, 300});
    CHECK(options_of({"-p100", "200"}).pids == Pids{100, 200});
    CHECK(options_of({"--pid=100", "200"}).pids == Pids{100, 200});
    CHECK(options_of({"--pid", "100", "200"}).pids == Pids{100, 200});
    CHECK(options_of({"-afp", "100", "200"}).pids == Pids{100, 200});
    CHECK(options_of({"-p", "100 200\n300\n"}).pids == Pids{100, 200, 300});
    const Options twice = options_of({"-p", "100", "200", "-p", "300", "-p", "8", "9"});
    CHECK(twice.pids == Pids{100, 200, 300, 8});
    CHECK(twice.interval_ns == 9'000'000'000);
}

TEST_CASE("INTERVAL and COUNT follow the words of pidof", "[cli][targets]") {
    const Options options = options_of({"-p", "100", "200", "300", "5", "10"});
    CHECK(options.pids == Pids{100, 200, 300});
    CHECK(options.interval_ns == 5'000'000'000);
    CHECK(options.count == 10u);
    const Options before = options_of({"5", "-p", "100", "200", "10"});
    CHECK(before.pids == Pids{100, 200});
    CHECK(before.interval_ns == 5'000'000'000);
    CHECK(before.count == 10u);
    CHECK(options_of({"-p", "100", "200s"}).interval_ns == 200'000'000'000);
    CHECK(options_of({"-p", "100", "-o", "200"}).older_ns == 200'000'000);
}

TEST_CASE("a process that has ended among the words of pidof is no interval", "[cli][targets]") {
    CHECK(error_of({"-p", "100", "150", "200"}).why == "process 200 runs the program of 100, but 150 does not");
    CHECK(error_of({"-p", "100", "150", "200"}).what == "-p 100 150 200");
    CHECK_THAT(error_of({"-p", "100", "5", "200"}).hint, ContainsSubstring("-p 100 5s"));
}

TEST_CASE("a small number that is both a process and an interval is refused", "[cli][targets]") {
    const Error error = error_of({"-p", "100", "7"});
    CHECK(error.what == "-p 100 7");
    CHECK(error.why == "7 is a process of the same program, or an interval");
    CHECK_THAT(error.hint, ContainsSubstring("-p 100,7") && ContainsSubstring("-p 100 7s"));
    CHECK(options_of({"-p", "100,7", "200"}).pids == Pids{100, 7});
    CHECK(options_of({"-p", "7", "200"}).pids == Pids{7, 200});
    CHECK(options_of({"-p", "100", "7s"}).pids == Pids{100});
}

TEST_CASE("a value that names several processes takes no more", "[cli][targets]") {
    const Options options = options_of({"-p", "100,200", "300"});
    CHECK(options.pids == Pids{100, 200});
    CHECK(options.interval_ns == 300'000'000'000);
    CHECK(options_of({"-p", "100,", "200"}).interval_ns == 200'000'000'000);
}

TEST_CASE("a command's own -p is not ours", "[cli][targets]") {
    const Options options = options_of({"--", "ls", "-p", "100", "200"});
    CHECK(options.command == Words{"ls", "-p", "100", "200"});
}
