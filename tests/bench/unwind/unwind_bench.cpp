// What a stack costs: memtrace's walk beside bpf_get_stackid at the same calls of a program with frame pointers, the
// walk in a compiler, and building unwind tables.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "bench/child_process.hpp"
#include "bench/statistics.hpp"
#include "unwind/unwind_table.hpp"
#include "unwind/walk_probe.hpp"

namespace memtrace {
namespace {

using Json = nlohmann::ordered_json;

struct Depth {
    uint32_t frames;
    double target_ratio;
};
constexpr std::array depths = {Depth{6, 0.55}, Depth{20, 0.45}, Depth{58, 0.40}};
constexpr double target_frame_ns = 60;
constexpr double target_mb_a_second = 100;
constexpr double target_kb_a_mb = 15;
/// _start and two functions of the C library, which walk_target does not count.
constexpr uint32_t frames_below_main = 3;
constexpr uint32_t rounds = 25;
constexpr uint32_t builds = 9;
constexpr uint32_t calls_a_round = 9000;

struct Spread {
    double median = 0;
    double p10 = 0;
    double p90 = 0;
};

Spread spread(const std::vector<double>& values) {
    return {median(values), quantile(values, 0.1), quantile(values, 0.9)};
}

Json to_json(const Spread& values) {
    return {{"median", values.median}, {"p10", values.p10}, {"p90", values.p90}};
}

std::vector<double> durations_ns(const std::vector<walk_sample>& samples) {
    std::vector<double> values;
    values.reserve(samples.size());
    for (const walk_sample& sample : samples)
        values.push_back(sample.duration_ns);
    return values;
}

/// Waits for a line, or for the end of what `child` writes.
void read_line(const ChildProcess& child) {
    for (char byte = 0; byte != '\n' && read(child.output(), &byte, 1) == 1;) {
    }
}

Error too_few(const std::string& what) {
    return {what, "too few walks were timed", "see whether the probe is on malloc"};
}

/// The medians of each round, net of the clock's own time.
struct Walks {
    std::vector<double> memtrace_ns;
    std::vector<double> kernel_ns;
    std::vector<double> ratios;
    uint32_t frames = 0;
};

Result<void> measure_round(WalkProbe& probe, const ChildProcess& target, uint32_t frames, Walks& walks) {
    probe.clear();
    const std::string request = fmt::format("{} {}\n", frames - frames_below_main, calls_a_round);
    if (write(target.input(), request.data(), request.size()) < 0) return Error{"the target ended", "it takes no line"};
    read_line(target);
    const auto nothing = durations_ns(probe.samples(WALK_NOTHING));
    const auto walked = probe.samples(WALK_BY_MEMTRACE);
    const auto kernel = durations_ns(probe.samples(WALK_BY_KERNEL));
    if (nothing.size() < 1000 || walked.size() < 1000 || kernel.size() < 1000) return too_few("walk_target");
    const double clock_ns = median(nothing);
    walks.memtrace_ns.push_back(median(durations_ns(walked)) - clock_ns);
    walks.kernel_ns.push_back(median(kernel) - clock_ns);
    walks.ratios.push_back(walks.memtrace_ns.back() / walks.kernel_ns.back());
    walks.frames = walked.back().frame_count;
    return {};
}

/// All depths in a new process: where its stack begins in a page decides how many reads a walk takes.
Result<void> measure_target(WalkProbe& probe, const std::string& path, std::array<Walks, depths.size()>& walks) {
    const Result<ChildProcess> target = ChildProcess::start({path}, {});
    if (!target) return target.error();
    if (auto attached = probe.attach(target->pid(), WALK_KINDS); !attached) return attached;
    for (size_t index = 0; index < depths.size(); ++index)
        if (auto done = measure_round(probe, *target, depths[index].frames, walks[index]); !done) return done;
    probe.detach();
    return {};
}

Result<Json> measure_depths(WalkProbe& probe) {
    const std::string path = MEMTRACE_BUILD_DIR "/tests/bench/unwind/walk_target";
    if (auto added = probe.add_tables_of(path); !added) return added.error();
    std::array<Walks, depths.size()> walks;
    for (uint32_t round = 0; round < rounds; ++round)
        if (auto done = measure_target(probe, path, walks); !done) return done.error();
    Json rows = Json::array();
    fmt::print("{:>6}  {:>11}  {:>17}  {:>6}  {:>5}  {:>5}  {:>6}\n", "frames", "memtrace ns", "bpf_get_stackid ns",
               "ratio", "p10", "p90", "target");
    for (size_t index = 0; index < depths.size(); ++index) {
        const Walks& one = walks[index];
        const Spread ratio = spread(one.ratios);
        fmt::print("{:>6}  {:>11.0f}  {:>18.0f}  {:>6.2f}  {:>5.2f}  {:>5.2f}  {:>6.2f}\n", one.frames,
                   median(one.memtrace_ns), median(one.kernel_ns), ratio.median, ratio.p10, ratio.p90,
                   depths[index].target_ratio);
        rows.push_back({{"frames", one.frames},
                        {"memtrace_ns", to_json(spread(one.memtrace_ns))},
                        {"bpf_get_stackid_ns", to_json(spread(one.kernel_ns))},
                        {"ratio", to_json(ratio)},
                        {"target_ratio", depths[index].target_ratio},
                        {"walks_broken", probe.walks_broken()}});
    }
    return rows;
}

/// Nanoseconds a frame of each walk while clang compiles a file.
Result<Json> measure_compiler(WalkProbe& probe) {
    const std::string path = "/usr/bin/clang++";
    if (auto added = probe.add_tables_of(path); !added) return added.error();
    // The shell is there so that the probe is on the process before it becomes the compiler.
    const Result<ChildProcess> compiler = ChildProcess::start(
        {"/bin/sh", "-c",
         "read line; exec " + path + " -O2 -c -o /dev/null " MEMTRACE_SOURCE_DIR "/tests/bench/unwind/compiled.cpp"},
        {});
    if (!compiler) return compiler.error();
    if (auto attached = probe.attach(compiler->pid(), WALK_BY_MEMTRACE + 1); !attached) return attached.error();
    if (write(compiler->input(), "\n", 1) != 1) return Error{"the compiler ended", "it takes no line"};
    read_line(*compiler);
    probe.detach();
    const auto nothing = durations_ns(probe.samples(WALK_NOTHING));
    const auto walked = probe.samples(WALK_BY_MEMTRACE);
    if (nothing.size() < 1000 || walked.size() < 1000) return too_few("clang++");
    const double clock_ns = median(nothing);
    std::vector<double> frame_ns;
    double frames = 0;
    for (const walk_sample& sample : walked) {
        frames += sample.frame_count;
        if (sample.frame_count > 0) frame_ns.push_back((sample.duration_ns - clock_ns) / sample.frame_count);
    }
    frames /= static_cast<double>(walked.size());
    const Spread one = spread(frame_ns);
    fmt::print(
        "\nclang++ -O2: {:.1f} ns a frame (p10 {:.1f}, p90 {:.1f}; at most {}), {:.1f} frames a stack, {} of {} "
        "broken\n",
        one.median, one.p10, one.p90, target_frame_ns, frames, probe.walks_broken(), probe.walks());
    return Json{{"frame_ns", to_json(one)},
                {"target_frame_ns", target_frame_ns},
                {"frames", frames},
                {"walks_broken", probe.walks_broken()},
                {"walks", probe.walks()}};
}

/// Those of clang, which builds the programs of BPF.
std::vector<std::string> large_libraries() {
    std::vector<std::string> found;
    for (const char* name : {"libLLVM-14.so.1", "libclang-cpp.so.14"}) {
        const std::string path = std::string("/usr/lib/x86_64-linux-gnu/") + name;
        if (access(path.c_str(), R_OK) == 0) found.push_back(path);
    }
    return found;
}

Result<Json> measure_tables(const std::vector<std::string>& paths) {
    fmt::print("\n{:<22}  {:>7}  {:>8}  {:>5}  {:>5}  {:>12}\n", "table of", "text MB", "MB a s", "p10", "p90",
               "KB a MB text");
    Json rows = Json::array();
    for (const std::string& path : paths) {
        const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
        std::vector<double> speeds;
        double text_mb = 0;
        double kb_a_mb = 0;
        for (uint32_t build = 0; build < builds; ++build) {
            const auto begin = std::chrono::steady_clock::now();
            const Result<UnwindTable> table = build_unwind_table(fd.get(), -1, UnwindRows::call_sites);
            const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
            if (!table) return table.error();
            text_mb = static_cast<double>(table->text_bytes) / (1 << 20);
            kb_a_mb = static_cast<double>(table->size_bytes()) / 1024 / text_mb;
            speeds.push_back(text_mb / seconds.count());
        }
        const Spread speed = spread(speeds);
        fmt::print("{:<22}  {:>7.1f}  {:>8.0f}  {:>5.0f}  {:>5.0f}  {:>12.1f}\n",
                   std::filesystem::path(path).filename().string(), text_mb, speed.median, speed.p10, speed.p90,
                   kb_a_mb);
        rows.push_back({{"file", path}, {"text_mb", text_mb}, {"mb_a_second", to_json(speed)}, {"kb_a_mb", kb_a_mb}});
    }
    fmt::print("(at least {} MB a second, at most {} KB a MB)\n", target_mb_a_second, target_kb_a_mb);
    return rows;
}

Result<void> run(const std::vector<std::string>& files) {
    auto probe = WalkProbe::load();
    if (!probe) return probe.error();
    const Result<Json> walks = measure_depths(**probe);
    if (!walks) return walks.error();
    const Result<Json> compiler = measure_compiler(**probe);
    if (!compiler) return compiler.error();
    std::vector<std::string> paths = large_libraries();
    paths.insert(paths.end(), files.begin(), files.end());
    const Result<Json> tables = measure_tables(paths);
    if (!tables) return tables.error();
    fmt::print("\n{}\n", Json({{"walks", *walks}, {"compiler", *compiler}, {"tables", *tables}}).dump());
    return {};
}

}  // namespace
}  // namespace memtrace

/// Further arguments: more files to build tables of.
int main(int argc, char** argv) {
    const memtrace::Result<void> done = memtrace::run(std::vector<std::string>(argv + 1, argv + argc));
    if (done) return 0;
    memtrace::log_error(done.error());
    return static_cast<int>(done.error().status);
}
