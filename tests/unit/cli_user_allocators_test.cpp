// The functions of --alloc, --free and --allocators together.
#include "cli/user_allocators.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "catch.hpp"

using namespace memtrace;

namespace {

Options options_with(std::initializer_list<const char*> allocating) {
    Options options;
    for (const char* text : allocating) {
        const Result<UserFunction> function = parse_user_function(text, UserFunctionKind::allocates);
        REQUIRE(function);
        options.user_functions.push_back(*function);
    }
    return options;
}

/// A file that has a path as long as it is open.
struct TextFile {
    explicit TextFile(const std::string& text) : fd(::memfd_create("rows", MFD_CLOEXEC)) {
        REQUIRE(::pwrite(fd.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
        path = "/proc/self/fd/" + std::to_string(fd.get());
    }
    Fd fd;
    std::string path;
};

std::vector<UserFunction> functions_of(const Options& options) {
    const Result<std::vector<UserFunction>> functions = user_functions_of(options);
    if (!functions) FAIL(functions.error().what << ": " << functions.error().why);
    return *functions;
}

Error error_of(const Options& options) {
    const Result<std::vector<UserFunction>> functions = user_functions_of(options);
    REQUIRE_FALSE(functions);
    CHECK(functions.error().status == ExitStatus::usage);
    CHECK_FALSE(functions.error().hint.empty());
    return functions.error();
}

}  // namespace

TEST_CASE("functions come the more precisely placed the later, from options and file", "[cli][user]") {
    const TextFile file(
        "user /nowhere/lib.so:get allocate heap size=arg1 get\nuser take allocate heap size=arg2 take\n");
    Options options = options_with({"lib.so:get", "get"});
    options.allocators_path = file.path;
    const std::vector<UserFunction> functions = functions_of(options);
    REQUIRE(functions.size() == 4);
    CHECK(functions[0].symbol == "get");
    CHECK(functions[0].file.empty());
    CHECK(functions[1].symbol == "take");
    CHECK(functions[2].file == "lib.so");
    CHECK(functions[3].file == "/nowhere/lib.so");
    CHECK(functions_of(Options{}).empty());
}

TEST_CASE("a path is followed to the file that maps show", "[cli][user]") {
    char real[PATH_MAX];
    REQUIRE(::realpath("/proc/self/exe", real) != nullptr);
    CHECK(functions_of(options_with({"/proc/self/exe:get"})).front().file == real);
    CHECK(error_of(options_with({"./no/such/file:get"})).what == "'./no/such/file'");
    CHECK(error_of(options_with({"/proc/self/exe:get", "/proc/self/../self/exe:get"})).what == "'get'");
}

TEST_CASE("a mangled name is shown demangled, a name of the user's as it is", "[cli][user]") {
    CHECK(functions_of(options_with({"_ZN4Pool3getEm"})).front().name == "Pool::get(unsigned long)");
    CHECK(functions_of(options_with({"_ZN4Pool3getEm"})).front().symbol == "_ZN4Pool3getEm");
    const TextFile file("user _ZN4Pool3getEm allocate heap size=arg1 the pool\n");
    Options options;
    options.allocators_path = file.path;
    CHECK(functions_of(options).front().name == "the pool");
}

TEST_CASE("what is wrong with a file of rows is told", "[cli][user]") {
    Options options;
    options.allocators_path = "/no/such/file";
    CHECK(error_of(options).what == "--allocators /no/such/file");
    options.allocators_path = "/proc/self";
    CHECK(error_of(options).what == "--allocators /proc/self");
    options.allocators_path = "/dev/zero";
    CHECK(error_of(options).what == "/dev/zero");

    const TextFile wrong("user get allocate heap size=argh get\n");
    options.allocators_path = wrong.path;
    CHECK(error_of(options).what == wrong.path + ":1:29");

    const TextFile twice("user get allocate heap size=arg0 get\n");
    options = options_with({"get:size=arg1"});
    options.allocators_path = twice.path;
    CHECK(error_of(options).what == "'get'");
}

TEST_CASE("options and file together have room for as many functions as the table", "[cli][user]") {
    std::string text;
    for (size_t index = 0; index < max_user_functions(); ++index)
        text += fmt::format("user get{} allocate heap size=arg0 get\n", index);
    const TextFile file(text);
    Options options;
    options.allocators_path = file.path;
    CHECK(functions_of(options).size() == max_user_functions());
    options.user_functions = options_with({"one_more"}).user_functions;
    CHECK_THAT(error_of(options).why, ContainsSubstring(std::to_string(max_user_functions())));
}
