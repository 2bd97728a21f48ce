// `memtrace selftest` on this machine: exact where nothing is lost, and it says what is wrong where something is.
#include "catch.hpp"
#include "e2e/memtrace.hpp"

using namespace memtrace::e2e;

namespace {

Finished run_selftest(const std::vector<std::string>& options) {
    std::vector<std::string> command = {memtrace_path(), "selftest"};
    command.insert(command.end(), options.begin(), options.end());
    return run_to_end(command);
}

}  // namespace

TEST_CASE("the self-test is exact on every rung, and says what a bug report needs", "[e2e][selftest][kernels]") {
    require_root();
    on_every_rung([](const std::string& rung) {
        const Finished run = run_selftest({"--attach", rung});
        INFO(run.output << run.errors);
        if (run.status == 69) throw RungMissing(run.errors);
        CHECK(run.status == 0);
        CHECK(run.errors.empty());
        CHECK_THAT(run.output, ContainsSubstring("memtrace 0."));
        CHECK_THAT(run.output, ContainsSubstring("rung " + rung));
        CHECK_THAT(run.output, ContainsSubstring("\nexact: all 17 figures are as the traced program counted them"));
    });
}

TEST_CASE("a self-test that loses something says what, with status 1", "[e2e][selftest]") {
    require_root();
    const Finished run = run_selftest({"--max-live-blocks", "4"});
    INFO(run.output << run.errors);
    CHECK(run.status == 1);
    CHECK_THAT(run.output, ContainsSubstring("\nNOT exact"));
    CHECK_THAT(run.output, ContainsSubstring("\n  blocks_not_recorded is "));
    CHECK_THAT(run.output, ContainsSubstring(", and the program counted "));
}

TEST_CASE("a self-test without privileges has the status and the reason of the tracing", "[e2e][selftest]") {
    require_root();
    const Finished run =
        run_to_end({"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", memtrace_path(), "selftest"});
    INFO(run.output << run.errors);
    CHECK(run.status == 77);
    CHECK(run.errors.starts_with("memtrace: "));
    CHECK_THAT(run.output, ContainsSubstring("\nfailed: the tracing: ended with status 77"));
}
