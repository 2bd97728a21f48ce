// Targets in chroots, namespaces and overlays, traced from the host: figures exact, names from the container's own
// files, which exist under no path of the host.
#include <algorithm>

#include "catch.hpp"
#include "e2e/check_cases.hpp"
#include "e2e/contained.hpp"

using namespace memtrace::e2e;

namespace {

/// The stack was walked and named through the program's own file to its end, of the first thread or another one.
bool leads_to_start(const Json& frames) {
    return std::any_of(frames.begin(), frames.end(), [](const Json& frame) {
        return frame.at("function") == "main" || frame.at("function") == "run_thread";
    });
}

/// Of each site that the program names.
void check_frames(const Json& truth, const Json& report, const std::string& program) {
    size_t checked = 0;
    for (const Json& site : report.at("sites")) {
        const Json& frames = site.at("frames");
        if (frames.empty() || frames[0].at("function").is_null()) continue;
        if (!truth.at("sites").contains(frames[0].at("function").get<std::string>())) continue;
        INFO(site.dump());
        ++checked;
        if (frames[0].at("kind") == "native") CHECK("/" + frames[0].at("module").get<std::string>() == program);
        CHECK(leads_to_start(frames));
    }
    CHECK(checked > 0);
}

void check_in(const Place& place, const std::string& program, const std::vector<std::string>& cases) {
    INFO(program << " in " << place.name);
    ContainedWorkload contained(place, program, cases);
    Memtrace memtrace(on_demand(rungs().front(), contained.pid()));
    memtrace.wait_attached();
    Json truth;
    for (size_t i = 0; i < cases.size(); ++i)
        truth = contained.workload().go();
    const Json report = memtrace.report();
    check_truth(truth, report);
    check_frames(truth, report, program);
    const MemtraceEnd end = memtrace.stop();
    CHECK(end.status == 0);
    INFO(end.errors);
    CHECK(end.errors.find("warning") == std::string::npos);
    CHECK(contained.workload().quit(7) == 7);
}

void check_everywhere(const std::string& workload, const std::vector<std::string>& cases,
                      const std::vector<std::string>& libraries = {}) {
    require_root();
    SmallRoot root;
    const std::string program = root.add(workload_path(workload));
    for (const std::string& library : libraries)
        root.copy(library);
    for (const Place& place : places_of(root))
        DYNAMIC_SECTION(place.name) {
            check_in(place, program, cases);
        }
}

}  // namespace

TEST_CASE("a container's own glibc is traced exactly, with names from its own files", "[e2e][contained]") {
    check_everywhere("libc_cases", cases_of(workload_path("libc_cases")));
}

TEST_CASE("a container's own musl is traced exactly, with names from its own files", "[e2e][contained]") {
    constexpr auto loader = "/lib/ld-musl-x86_64.so.1";
    if (!std::filesystem::exists(loader)) {
        WARN("skipped: musl-tools is not installed");
        return;
    }
    const std::string workload = "allocator_c_musl_linked";
    check_everywhere(workload, cases_of(workload_path(workload)), {loader});
}

TEST_CASE("a container's glibc 2.41 is traced exactly, with names from its own files", "[e2e][contained]") {
    const std::filesystem::path libc = MEMTRACE_BUILD_DIR "/trixie_libc";
    if (!std::filesystem::exists(libc / "usr/lib64/ld-linux-x86-64.so.2")) {
        WARN("skipped: `scripts/fetch_trixie_libc.sh build/trixie_libc` gets what is missing");
        return;
    }
    require_root();
    SmallRoot root;
    const std::string program = root.add(workload_path("libc_cases"), libc);
    for (const Place& place : places_of(root))
        DYNAMIC_SECTION(place.name) {
            check_in(place, program, cases_of(workload_path("libc_cases")));
        }
}

TEST_CASE("code made in a container is named by the map of its inner pid", "[e2e][contained]") {
    check_everywhere("jit_cases", {"made_code_allocates"});
}

TEST_CASE("the system call of a return probe passes a filter that would kill for it", "[e2e][contained]") {
    Workload workload(workload_path("seccomp_cases"));
    Memtrace memtrace(on_demand(rungs().front(), workload.pid()));
    memtrace.wait_attached();
    const Json truth = workload.go();
    check_truth(truth, memtrace.report());
    CHECK(memtrace.stop().status == 0);
    CHECK(workload.quit(7) == 7);
}
