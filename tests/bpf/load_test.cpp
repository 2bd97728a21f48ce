// Every set of programs that memtrace can ask a kernel for passes its verifier: what is constant for a session decides
// which code there is.
#include <string>
#include <utility>
#include <vector>

#include "bpf/tracing.hpp"
#include "probes/allocator_table.hpp"

using namespace memtrace;
using namespace memtrace::test;

TEST_CASE("the kernel's verifier takes all programs, whatever is asked for", "[bpf][load]") {
    const AllocatorTable table;
    const std::vector<std::pair<std::string, SessionOptions>> variants = {
        {"plain", {.table = &table, .rung = {}}},
        {"of blocks as they come and go", {.table = &table, .rung = {}, .traces_blocks = true}},
        {"sampled", {.table = &table, .rung = {}, .samples = true, .sampling_mean_bytes = 1u << 19}},
        {"of children", {.table = &table, .rung = {}, .program_names = {"nginx"}, .follows_children = true}},
        {"of all", {.table = &table, .rung = {}, .traces_all = true}},
    };
    for (const AttachRung rung : {AttachRung::session, AttachRung::multi, AttachRung::perf}) {
        if (!kernel_has_rung(rung)) continue;
        for (const auto& [name, options] : variants) {
            SessionOptions with_rung = options;
            with_rung.rung = rung;
            with_rung.max_live_blocks = 1u << 10;
            CAPTURE(rung_name(rung), name);
            const auto session = Session::open(with_rung);
            if (!session) FAIL_CHECK(session.error().what + ": " + session.error().why);
        }
    }
}
