// What memtrace says, and with which status it ends, when it cannot do what it was asked to.
#include <unistd.h>

#include "catch.hpp"
#include "e2e/memtrace.hpp"

using namespace memtrace::e2e;

namespace {

Finished run_memtrace(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), memtrace_path());
    return run_to_end(arguments);
}

/// One line `memtrace: WHAT: WHY` that names `name`; nothing on stdout.
void check_error(const Finished& run, int status, const std::string& name) {
    INFO("stderr: " << run.errors);
    CHECK(run.status == status);
    CHECK(run.output.empty());
    CHECK(run.errors.starts_with("memtrace: "));
    CHECK_THAT(run.errors, ContainsSubstring(name));
}

/// A pid that no process has: one above the highest.
std::string missing_pid() {
    return "4194305";
}

}  // namespace

TEST_CASE("no target is a usage error with a hint", "[e2e][errors]") {
    const Finished run = run_memtrace({});
    check_error(run, 2, "no target");
    CHECK_THAT(run.errors, ContainsSubstring("\nhint: "));
}

TEST_CASE("a lone number is no target, and the hint shows -p", "[e2e][errors]") {
    const Finished run = run_memtrace({"1234"});
    check_error(run, 2, "no target");
    CHECK_THAT(run.errors, ContainsSubstring("-p 1234"));
}

TEST_CASE("values that are none are usage errors that name them", "[e2e][errors]") {
    check_error(run_memtrace({"-p", "haha"}), 2, "haha");
    check_error(run_memtrace({"-p", "-5"}), 2, "-5");
    check_error(run_memtrace({"-p", "1", "--no-such-option"}), 2, "--no-such-option");
    check_error(run_memtrace({"-p", "1", "--format", "pdf"}), 2, "pdf");
    check_error(run_memtrace({"-p", "1", "-T", "many"}), 2, "many");
    check_error(run_memtrace({"-p", "1", "--sort", "color"}), 2, "color");
    check_error(run_memtrace({"-p", "1", "5", "x"}), 2, "x");
    check_error(run_memtrace({"-p", "1", "-z", "10", "-Z", "5"}), 2, "--min-size");
    check_error(run_memtrace({"--"}), 2, "command");
}

TEST_CASE("a process that does not exist gives 3", "[e2e][errors]") {
    require_root();
    check_error(run_memtrace({"-p", missing_pid()}), 3, missing_pid());
}

TEST_CASE("a kernel thread has no allocator to trace", "[e2e][errors]") {
    require_root();
    check_error(run_memtrace({"-p", "2"}), 4, "2");
}

TEST_CASE("without privilege it ends with 77 and a hint", "[e2e][errors]") {
    require_root();
    Child sleeper({"sleep", "100"});
    const Finished run = run_to_end({"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", memtrace_path(),
                                     "-p", std::to_string(sleeper.pid())});
    check_error(run, 77, "");
    CHECK_THAT(run.errors, ContainsSubstring("\nhint: "));
    CHECK(sleeper.is_running());
}

TEST_CASE("an output file that cannot be made is named", "[e2e][errors]") {
    require_root();
    Child sleeper({"sleep", "100"});
    check_error(run_memtrace({"-p", std::to_string(sleeper.pid()), "--output", "/no/such/directory/file"}), 1,
                "/no/such/directory/file");
}

TEST_CASE("help and version go to stdout with status 0", "[e2e][errors]") {
    const Finished help = run_memtrace({"--help"});
    CHECK(help.status == 0);
    CHECK(help.errors.empty());
    CHECK_THAT(help.output, ContainsSubstring("--pid"));
    const Finished version = run_memtrace({"--version"});
    CHECK(version.status == 0);
    CHECK_THAT(version.output, ContainsSubstring("memtrace"));
}

TEST_CASE("memtrace list prints a row for each function of the table", "[e2e][errors]") {
    const Finished list = run_memtrace({"list"});
    CHECK(list.status == 0);
    for (const char* name :
         {"malloc", "calloc", "realloc", "reallocarray", "free", "cfree", "posix_memalign", "aligned_alloc", "memalign",
          "valloc", "pvalloc", "operator new", "mmap", "munmap", "mremap"}) {
        INFO(name);
        CHECK_THAT(list.output, ContainsSubstring(name));
    }
}
