// Probes stand behind functions' first bytes where the kernel can emulate an instruction. On real programs under load,
// each such place must be hit exactly as often as the function is entered: probes of the test's own count both.
#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>

#include "bpf/tracing.hpp"
#include "catch.hpp"
#include "e2e/child.hpp"
#include "e2e/temporary_directory.hpp"
#include "probes/allocator_table.hpp"
#include "test_hits.skel.h"

using namespace memtrace;
using e2e::Child;

namespace {

struct SkeletonDeleter {
    void operator()(test_hits_bpf* skeleton) const { test_hits_bpf__destroy(skeleton); }
};
using Skeleton = std::unique_ptr<test_hits_bpf, SkeletonDeleter>;

struct Hits {
    uint64_t calls = 0;
    uint64_t nulls = 0;  // of them with argument 1 NULL
    bool operator==(const Hits&) const = default;
};

/// Of one row.
struct Counts {
    Hits entry;
    Hits place;
    bool operator==(const Counts&) const = default;
};
using Reading = std::map<uint32_t, Counts>;

// include/uapi/linux/bpf.h of Linux 6.6; Debian 12's headers do not know it.
constexpr auto bpf_trace_uprobe_multi = static_cast<bpf_attach_type>(48);

Skeleton load_counters() {
    Skeleton skeleton(test_hits_bpf__open());
    REQUIRE(skeleton);
    for (bpf_program* program : {skeleton->progs.on_entry, skeleton->progs.on_place, skeleton->progs.on_return})
        bpf_program__set_expected_attach_type(program, bpf_trace_uprobe_multi);
    REQUIRE(test_hits_bpf__load(skeleton.get()) == 0);
    return skeleton;
}

/// The file that `pid` maps whose name has `part` in it.
std::string mapped_file(pid_t pid, const std::string& part) {
    std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
    for (std::string line; std::getline(maps, line);) {
        const size_t path = line.find('/');
        if (path != std::string::npos && line.find(part, path) != std::string::npos) return line.substr(path);
    }
    FAIL("process " << pid << " maps no " << part);
    return "";
}

/// Probes at the entry and at the chosen place of every row that `file` defines, for one process.
class HitCounters {
  public:
    /// `has_first_bytes`: also those places that are the entry itself.
    HitCounters(pid_t pid, const std::string& file, bool has_first_bytes = false) : skeleton_(load_counters()) {
        const Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
        REQUIRE(fd);
        points_ = test::points_of_file(file);
        std::erase_if(points_, [&](const ProbePoint& point) {
            return point.kind != PointKind::entry || (point.placement.offset == 0 && !has_first_bytes);
        });
        REQUIRE(!points_.empty());
        std::vector<ProbePoint> entries = points_;
        for (ProbePoint& point : entries)
            point.file_offset -= point.placement.offset;
        attach(skeleton_->progs.on_place, fd.get(), points_, pid);
        attach(skeleton_->progs.on_entry, fd.get(), entries, pid);
    }

    /// The figures once they have stood still.
    Reading read() const {
        Reading last = read_now();
        for (;;) {
            usleep(100'000);
            Reading now = read_now();
            if (now == last) return now;
            last = std::move(now);
        }
    }

    const std::vector<ProbePoint>& points() const { return points_; }
    const AllocatorFunction& function_at(const ProbePoint& point) const { return table_[point.row]; }

  private:
    void attach(bpf_program* program, int fd, const std::vector<ProbePoint>& points, pid_t pid) {
        const RungPrograms programs = {program, skeleton_->progs.on_return, nullptr, nullptr};
        auto attached = FileProbes::attach(AttachRung::multi, programs, table_, fd, points, LinkScope{pid, 0});
        if (!attached) FAIL(attached.error().what << ": " << attached.error().why);
        probes_.push_back(std::move(*attached));
    }

    Reading read_now() const {
        Reading reading;
        const auto& counters = *skeleton_->bss;
        for (const ProbePoint& point : points_)
            reading[point.row] = {{counters.entry_hits[point.row], counters.entry_nulls[point.row]},
                                  {counters.place_hits[point.row], counters.place_nulls[point.row]}};
        return reading;
    }

    AllocatorTable table_;
    Skeleton skeleton_;
    std::vector<ProbePoint> points_;
    std::vector<FileProbes> probes_;
};

/// Every row equal to the hit; a place behind a test for NULL sees just the calls that are not NULL.
void check_equal(const HitCounters& counters, const Reading& reading) {
    uint64_t calls = 0;
    for (const ProbePoint& point : counters.points()) {
        const Counts& counts = reading.at(point.row);
        INFO(point.symbol << "+" << point.placement.offset << " " << point.placement.instruction << ": entries "
                          << counts.entry.calls << " (NULL " << counts.entry.nulls << "), place " << counts.place.calls
                          << " (NULL " << counts.place.nulls << ")");
        CHECK(counts.place.calls - counts.place.nulls == counts.entry.calls - counts.entry.nulls);
        const bool is_behind_test =
            counters.function_at(point).null_does_nothing && counts.place.nulls == 0 && counts.entry.nulls != 0;
        if (!is_behind_test) CHECK(counts.place.nulls == counts.entry.nulls);
        calls += counts.entry.calls;
    }
    CHECK(calls > 5'000);
}

bool is_installed(const std::string& program) {
    return e2e::run_to_end({"sh", "-c", "command -v " + program}).status == 0;
}

/// Waits until the server answers on its socket.
void wait_for_redis(const std::string& socket) {
    const std::string wait = "until redis-cli -s " + socket + " ping 2>/dev/null | grep -q PONG; do sleep 0.05; done";
    REQUIRE(e2e::run_to_end({"timeout", "20", "sh", "-c", wait}).status == 0);
}

/// A Python that waits for a line, makes and drops objects with malloc, answers, and waits again.
const std::string python_load = R"(
import sys
print('ready', flush=True)
for line in sys.stdin:
    for size in range(1, 400):
        kept = [bytes(size * n) for n in range(40)] + [str(n) * size for n in range(40)]
        text = ''.join(str(part) for part in kept[:3])
    print('done', flush=True)
)";

bool can_run_on(const std::string& library) {
    if (!test::can_trace(AttachRung::multi)) return false;
    if (access(library.c_str(), R_OK) == 0) return true;
    WARN("skipped: there is no " << library);
    return false;
}

/// Python on the allocator of the file whose name has `part` in it.
void check_python(const std::vector<std::string>& environment, const std::string& part) {
    Child python({"python3", "-c", python_load}, environment);
    REQUIRE(python.read_line() == "ready");
    const HitCounters counters(python.pid(), mapped_file(python.pid(), part));
    python.write_line("go");
    REQUIRE(python.read_line() == "done");
    check_equal(counters, counters.read());
}

void check_preloaded_python(const std::string& library) {
    if (!can_run_on(library)) return;
    check_python({"LD_PRELOAD=" + library, "PYTHONMALLOC=malloc"}, library.substr(library.rfind('/')));
}

/// Five rounds of one case of a workload, on the file whose name has `part` in it.
void check_workload(const std::string& name, const std::string& workload_case, const std::string& part,
                    bool has_first_bytes) {
    const std::string program = std::string(MEMTRACE_BUILD_DIR "/tests/workloads/") + name;
    if (access(program.c_str(), X_OK) != 0) {
        WARN("skipped: there is no " << program);
        return;
    }
    constexpr int rounds = 5;
    std::vector<std::string> command = {program};
    command.insert(command.end(), rounds, workload_case);
    Child workload(command);
    REQUIRE(workload.read_line().starts_with("ready"));
    const HitCounters counters(workload.pid(), mapped_file(workload.pid(), part), has_first_bytes);
    for (int round = 0; round < rounds; ++round) {
        workload.write_line("go");
        workload.read_line();
    }
    check_equal(counters, counters.read());
}

/// operator new and delete of the library, from racing threads of the C++ workload that is linked with it.
void check_linked_workload(const std::string& library, const std::string& name) {
    if (!can_run_on(library)) return;
    check_workload(name, "threads_delete_each_others_blocks", library.substr(library.rfind('/')), false);
}

}  // namespace

TEST_CASE("redis-server's jemalloc under load is hit at the chosen places as often as at its entries", "[hits]") {
    if (!test::can_trace(AttachRung::multi)) return;
    if (!is_installed("redis-server")) {
        WARN("skipped: redis-server is not installed");
        return;
    }
    const e2e::TemporaryDirectory directory;
    const std::string socket = directory.path() / "socket";
    Child server({"redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", directory.path(),
                  "--hz", "1", "--dynamic-hz", "no"});
    wait_for_redis(socket);
    const HitCounters counters(server.pid(), mapped_file(server.pid(), "libjemalloc"));
    const e2e::Finished load = e2e::run_to_end({"redis-benchmark", "-s", socket, "-n", "1500", "-r", "1000", "-d",
                                                "200", "-c", "10", "-q", "-t", "set,lpush,lpop,sadd,hset,zadd,mset"});
    REQUIRE(load.status == 0);
    check_equal(counters, counters.read());
}

TEST_CASE("a program on tcmalloc is hit at the chosen places as often as at its entries", "[hits]") {
    check_preloaded_python(TCMALLOC_LIBRARY);
    check_linked_workload(TCMALLOC_LIBRARY, "allocator_cxx_tcmalloc_linked");
}

TEST_CASE("a program on mimalloc is hit at the chosen places as often as at its entries", "[hits]") {
    check_preloaded_python(MIMALLOC_LIBRARY);
    check_linked_workload(MIMALLOC_LIBRARY, "allocator_cxx_mimalloc_linked");
}

TEST_CASE("a program on glibc is hit at the chosen places as often as at its entries", "[hits]") {
    if (!test::can_trace(AttachRung::multi)) return;
    check_python({"PYTHONMALLOC=malloc"}, "/libc.so.6");
}

TEST_CASE("operator new of libstdc++ is hit at the chosen places as often as at its entries", "[hits]") {
    if (!test::can_trace(AttachRung::multi)) return;
    check_workload("allocator_cxx_glibc_linked", "threads_delete_each_others_blocks", "/libstdc++.so", false);
}

TEST_CASE("a program on musl is hit at the chosen places as often as at its entries", "[hits]") {
    if (!test::can_trace(AttachRung::multi)) return;
    // Most of its places are entries, so these are looked at as well.
    check_workload("allocator_c_musl_linked", "threads_free_each_others_blocks", "-musl/libc.so", true);
}
