// The same stacks as gdb, frame by frame to the last one, at the same calls of the same run.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "catch.hpp"
#include "e2e/gdb_stacks.hpp"
#include "e2e/temporary_directory.hpp"

using namespace memtrace::e2e;

namespace {

/// In its first pass a stack may be cut with the reason that a table was not there: signals interrupt code at addresses
/// for which no table is loaded before it is needed.
bool awaits_table(const MarkedStack& stack) {
    return stack.pass == 0 && !stack.site.is_null() && stack.site.at("stack_error").is_string() &&
           stack.site.at("stack_error").get<std::string>().find("unwind table") != std::string::npos;
}

bool can_compare() {
    require_root();
    if (has_program("gdb")) return true;
    WARN("skipped, there is no gdb");
    return false;
}

MarkedProgram shapes(const std::string& name) {
    return {workload_path("stacks/stacks_" + name), {}, {}, 2};
}

bool has_function(const Json& site, const std::string& name) {
    const Json& frames = site.at("frames");
    return std::any_of(frames.begin(), frames.end(), [&](const Json& frame) { return frame.at("function") == name; });
}

/// A program of others with stacks/preload.c in it: marks at every `every`-th of its own calls of malloc.
MarkedProgram preloaded(const std::string& path, const std::vector<std::string>& arguments, int every) {
    return {path,
            arguments,
            {"LD_PRELOAD=" + workload_path("stacks/libstacks_preload.so"), "STACKS_EVERY=" + std::to_string(every)}};
}

bool was_built(const MarkedProgram& program) {
    if (std::filesystem::exists(program.path)) return true;
    WARN("skipped, its compiler was missing: " << program.path);
    return false;
}

void check_stacks(const MarkedProgram& program, size_t at_least) {
    if (!was_built(program)) return;
    INFO(program.path);
    const std::vector<MarkedStack> stacks = run_marked(program);
    CHECK(stacks.size() >= at_least);
    std::string differences;
    for (const MarkedStack& stack : stacks)
        if (!awaits_table(stack)) differences += difference(stack);
    INFO(differences);
    CHECK(differences.empty());
}

/// musl's own functions have no CFI: a stack through one ends there and says so, but for a thread's start, where rbp is
/// 0.
void check_musl(const MarkedStack& stack, bool is_static) {
    INFO(stack.shape << (is_static ? ", static" : ", dynamic"));
    REQUIRE_FALSE(stack.site.is_null());
    const std::set<std::string> through_libc = {"callback of qsort", "strdup", "strndup",
                                                "handler that interrupts the vDSO"};
    const Json& names = stack.gdb.at("names");
    // musl's raise keeps the address of a signal set in rbp: where a walk by it ends depends on what is behind the set.
    if (stack.shape == "signal handler") {
        CHECK(stack.site.at("frames").at(0).at("function") == "on_signal");
        return;
    }
    const bool is_in_thread = std::find(names.begin(), names.end(), Json("is_a_thread")) != names.end();
    CHECK(stack.site.at("stack_error").is_null() == is_in_thread);
    if (through_libc.contains(stack.shape)) return;
    if (stack.shape != "handler of a fault" || is_static) {
        CHECK(difference(stack, is_in_thread ? "is_a_thread" : "main") == "");
        return;
    }
    // gdb does not know the stripped libc's __restore_rt.
    CHECK(has_function(stack.site, "is_faulted"));
    CHECK(has_function(stack.site, "main"));
}

}  // namespace

TEST_CASE("stacks equal gdb's, of every shape and however the program was built", "[e2e][gdb]") {
    if (!can_compare()) return;
    for (const char* name :
         {"gcc_O0", "gcc_O2", "gcc_O3", "gcc_frame_pointers", "gcc_omit_frame_pointer", "gcc_lto", "gcc_static",
          "gcc_static_pie", "clang_O0", "clang_O2", "clang_O3", "clang_lto", "clang_static", "clang_static_pie"})
        DYNAMIC_SECTION(name) {
            check_stacks(shapes(name), 2 * 40);
        }
}

TEST_CASE("stacks of musl programs equal gdb's as far as there is CFI", "[e2e][gdb]") {
    if (!can_compare()) return;
    for (const bool is_static : {false, true}) {
        const MarkedProgram program = shapes(is_static ? "musl_static" : "musl");
        if (!was_built(program)) continue;
        const std::vector<MarkedStack> stacks = run_marked(program);
        CHECK(stacks.size() >= 2 * 20);
        for (const MarkedStack& stack : stacks)
            if (!awaits_table(stack)) check_musl(stack, is_static);
    }
}

TEST_CASE("stacks of python3 equal gdb's", "[e2e][gdb]") {
    if (!can_compare()) return;
    const char* script =
        "import json, re, collections\n"
        "data = {str(i): [i, str(i) * 50, {'key': i / 3}] for i in range(2000)}\n"
        "copy = json.loads(json.dumps(data))\n"
        "words = collections.Counter(re.findall(r'[0-9]+', json.dumps(copy)))\n"
        "text = sorted(words, key=lambda word: word[::-1] * 200)\n";
    check_stacks(preloaded("/usr/bin/python3", {"-c", script}, 97), 30);
}

TEST_CASE("stacks of clang that compiles equal gdb's", "[e2e][gdb]") {
    if (!can_compare()) return;
    const TemporaryDirectory directory;
    const std::string source = directory.path() / "source.cpp";
    std::ofstream(source)
        << "#include <regex>\nbool f(const char* t) { return std::regex_match(t, std::regex(\"a+\")); }\n";
    check_stacks(preloaded("/usr/bin/clang++", {"-O2", "-c", source, "-o", directory.path() / "source.o"}, 9973), 30);
}
