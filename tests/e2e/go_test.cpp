// Go's heap: the runtime's own samples as they come and go, every allocation with --go-full, and C beside it.
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "catch.hpp"
#include "e2e/memtrace.hpp"

using namespace memtrace::e2e;

namespace {

constexpr int64_t dogs_a_step = 200000;
constexpr int64_t dog_bytes = 128;
constexpr int64_t cats_a_step = 64 * 500;

bool is_built(const std::string& program) {
    if (std::filesystem::exists(workload_path(program))) return true;
    WARN("skipped: " << program << " is not built, because a package is missing (golang-go)");
    return false;
}

std::vector<std::string> with(std::vector<std::string> options, const std::vector<std::string>& more) {
    options.insert(options.begin(), more.begin(), more.end());
    return options;
}

/// Of one function anywhere on the stack: Go's own functions are between it and the allocator.
struct Sum {
    int64_t live_bytes = 0;
    int64_t live_blocks = 0;
    int64_t allocations = 0;
    double variance = 0;
};

Sum sum_of(const Json& report, const std::string& function, const std::string& allocator) {
    Sum sum;
    for (const Json& site : report.at("sites")) {
        bool is_in = false;
        for (const Json& frame : site.at("frames"))
            is_in |= frame.at("function") == function;
        if (!is_in || site.at("allocator") != allocator) continue;
        sum.live_bytes += site.at("live_bytes").get<int64_t>();
        sum.live_blocks += site.at("live_blocks").get<int64_t>();
        sum.allocations += site.at("allocations").get<int64_t>();
        if (!site.contains("error_bytes")) continue;
        const auto error_bytes = site.at("error_bytes").get<double>();
        sum.variance += error_bytes * error_bytes;
    }
    return sum;
}

int64_t type_figure(const Json& report, const std::string& type, const std::string& figure) {
    for (const Json& entry : report.at("types"))
        if (entry.at("type") == type) return entry.at(figure).get<int64_t>();
    return 0;
}

void check_samples(const std::string& program, const std::string& rung) {
    Workload workload(workload_path(program));
    workload.go();
    Memtrace memtrace(on_demand(rung, workload.pid()));
    memtrace.wait_attached();
    workload.go();
    const Json report = memtrace.report();
    INFO(report.at("accuracy").dump());
    CHECK(report.at("accuracy").at("complete") == true);
    const Sum dogs = sum_of(report, "main.makeDogs", "go");
    const int64_t error = 4 * std::llround(std::sqrt(dogs.variance));
    // The array of pointers to them is made in it as well.
    INFO(dogs.live_bytes << " with an error of " << error / 4);
    CHECK(dogs.live_bytes > dogs_a_step * dog_bytes - error);
    CHECK(dogs.live_bytes < dogs_a_step * (dog_bytes + 24) + error);
    const Json& before = report.at("before_attach");
    const int64_t error_before = 4 * before.at("error_bytes").get<int64_t>();
    INFO(before.dump());
    CHECK(std::abs(before.at("live_bytes").get<int64_t>() - dogs_a_step * dog_bytes) < error_before + (4 << 20));
    for (const Json& site : report.at("sites"))
        if (site.at("allocator") == "go") CHECK(site.at("kind") == "gc");
    const MemtraceEnd end = memtrace.stop();
    CHECK(end.status == 0);
    CHECK(end.errors.find("were seen") == std::string::npos);
    CHECK(workload.quit(3) == 3);
}

}  // namespace

TEST_CASE("Go's own samples are blocks, and what they stand for is the heap", "[e2e][go]") {
    if (!is_built("go_heap")) return;
    on_every_rung([](const std::string& rung) { check_samples("go_heap", rung); });
}

TEST_CASE("a stripped Go program is traced and named by its own table of functions", "[e2e][go]") {
    if (is_built("go_heap_stripped")) check_samples("go_heap_stripped", "session");
}

TEST_CASE("each sample of Go's runtime is seen, and its end", "[e2e][go]") {
    if (!is_built("go_heap")) return;
    Workload workload(workload_path("go_heap"));
    const Json before = workload.go();
    Memtrace memtrace(with(on_demand("session", workload.pid()), {"--trace"}));
    memtrace.wait_attached();
    const Json after = workload.go();
    const MemtraceEnd end = memtrace.stop();
    int64_t samples = 0;
    int64_t frees = 0;
    for (const Json& record : end.records) {
        samples += record.at("type") == "alloc";
        frees += record.at("type") == "free";
    }
    const auto difference = [&](const char* figure) {
        return after.at(figure).get<int64_t>() - before.at(figure).get<int64_t>();
    };
    CHECK(samples == difference("samples"));
    // Those that were live before may have ended as well, and are no events.
    CHECK(samples - frees >= difference("live_samples"));
    CHECK(samples - frees <= after.at("live_samples").get<int64_t>());
    CHECK(workload.quit(0) == 0);
}

TEST_CASE("--go-full counts every object of a Go program, with its type", "[e2e][go]") {
    for (const std::string program : {"go_heap", "go_heap_stripped"}) {
        if (!is_built(program)) continue;
        INFO(program);
        Workload workload(workload_path(program));
        Memtrace memtrace(with(on_demand("session", workload.pid()), {"--go-full", "--types"}));
        memtrace.wait_attached();
        workload.go();
        const Json report = memtrace.report();
        INFO(report.at("accuracy").dump());
        CHECK(report.at("accuracy").at("complete") == true);
        CHECK(type_figure(report, "main.dog", "allocations") == dogs_a_step);
        CHECK(type_figure(report, "main.dog", "allocated_bytes") == dogs_a_step * dog_bytes);
        CHECK(type_figure(report, "main.dog", "live_blocks") == dogs_a_step);
        CHECK(type_figure(report, "main.cat", "allocations") == cats_a_step);
        CHECK(sum_of(report, "main.makeGarbage", "go").allocations == 5000);
        const MemtraceEnd end = memtrace.stop();
        CHECK(end.status == 0);
        CHECK(end.errors.find("were seen") == std::string::npos);
        CHECK(workload.quit(4) == 4);
    }
}

TEST_CASE("C and Go in one program stand side by side", "[e2e][go]") {
    if (!is_built("go_cgo")) return;
    Workload workload(workload_path("go_cgo"));
    Memtrace memtrace(on_demand("session", workload.pid()));
    memtrace.wait_attached();
    workload.go();
    const Json report = memtrace.report();
    INFO(report.at("accuracy").dump());
    CHECK(report.at("accuracy").at("complete") == true);
    const Sum native = sum_of(report, "keeps_native", "libc");
    CHECK(native.live_blocks == 1000);
    CHECK(native.live_bytes == 64 * 1000);
    const Sum dogs = sum_of(report, "main.makeDogs", "go");
    CHECK(dogs.live_bytes > dogs_a_step * dog_bytes - 4 * std::llround(std::sqrt(dogs.variance)));
    CHECK(memtrace.stop().status == 0);
    CHECK(workload.quit(5) == 5);
}

TEST_CASE("no return probe goes on Go code, whoever asks for it", "[e2e][go]") {
    if (!is_built("go_heap")) return;
    Workload workload(workload_path("go_heap"));
    Memtrace memtrace(with(on_demand("session", workload.pid()), {"--alloc", "main.makeDogs"}));
    memtrace.wait_attached();
    workload.go();
    const MemtraceEnd end = memtrace.stop();
    CHECK(end.errors.find("calls of main.makeDogs are not seen: Go code") != std::string::npos);
    CHECK(workload.quit(6) == 6);
}

TEST_CASE("a Go program whose runtime samples nothing is told", "[e2e][go]") {
    if (!is_built("stacks/stacks_chain_go")) return;
    Child program({workload_path("stacks/stacks_chain_go")});
    program.read_line();
    Memtrace memtrace(on_demand("session", program.pid()));
    memtrace.wait_attached();
    memtrace.report();
    CHECK(memtrace.stop().errors.find("MemProfileRate = 0") != std::string::npos);
    program.send_signal(9);
    program.wait();
}
