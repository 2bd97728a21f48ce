// The bench's command line and its two forms of output.
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "bench/ends.hpp"
#include "bench/measure.hpp"
#include "bench/programs.hpp"
#include "bench/reading.hpp"
#include "bench/statistics.hpp"

namespace memtrace {
namespace {

constexpr std::array shapes = {Shape{6, 0}, Shape{22, 0}, Shape{22, 4096}, Shape{22, 1u << 17}};
constexpr std::string_view usage =
    "bench [--rounds N] [--attach session|multi|perf] [--json FILE] [--program python3|g++|perl|redis]\n"
    "Nanoseconds for one malloc(64) and its free in a tight loop without a tracer, with empty probes, under memtrace "
    "and "
    "under memtrace --sample 512K; what real programs take; how long links take. --program: that one program only.\n";

struct Settings {
    uint32_t rounds = 15;
    std::optional<AttachRung> rung;
    std::string json_path;
    std::string program;  // this one only; empty: the whole bench
};

Result<Settings> parse_settings(const std::vector<std::string>& arguments) {
    Settings settings;
    for (size_t index = 0; index + 1 < arguments.size(); index += 2) {
        const std::string& name = arguments[index];
        const std::string& value = arguments[index + 1];
        if (name == "--rounds") settings.rounds = static_cast<uint32_t>(std::strtoul(value.c_str(), nullptr, 10));
        if (name == "--json") settings.json_path = value;
        if (name == "--program") settings.program = value;
        for (const AttachRung rung : {AttachRung::session, AttachRung::multi, AttachRung::perf})
            if (name == "--attach" && value == rung_name(rung)) settings.rung = rung;
        const bool is_known =
            name == "--rounds" || name == "--json" || name == "--program" || (name == "--attach" && settings.rung);
        if (!is_known) return Error{name, "unknown, or a wrong value", "--help shows the options", ExitStatus::usage};
    }
    if (arguments.size() % 2 != 0 || settings.rounds == 0)
        return Error{"bench", "an option without a proper value", "--help shows the options", ExitStatus::usage};
    return settings;
}

AttachRung best_rung() {
    for (const AttachRung rung : {AttachRung::session, AttachRung::multi})
        if (kernel_has_rung(rung)) return rung;
    return AttachRung::perf;
}

/// The median of the empty probes at the same depth; none if no slice of theirs was quiet.
std::optional<double> floor_ns(const std::vector<Measurement>& measurements, const Shape& shape) {
    for (const Measurement& measurement : measurements)
        if (measurement.tracer == "empty" && measurement.shape == shape && !measurement.round_medians_ns.empty())
            return median(measurement.round_medians_ns);
    return std::nullopt;
}

void print_table(const std::vector<Measurement>& measurements) {
    fmt::print("{:>6}  {:>7}  {:<8}  {:>10}  {:>10}  {:>10}  {:>9}  {:>12}\n", "frames", "live", "tracer", "ns a pair",
               "p10", "p90", "to empty", "quiet slices");
    for (const Measurement& measurement : measurements) {
        const std::vector<double>& values = measurement.round_medians_ns;
        const std::optional<double> floor = floor_ns(measurements, measurement.shape);
        const std::string slices = fmt::format("{}/{}", measurement.quiet_slices, measurement.slices);
        fmt::print("{:>6}  {:>7}  {:<8}  ", measurement.shape.frames, measurement.shape.live_blocks,
                   measurement.tracer);
        if (values.empty() || !floor) {
            fmt::print("{:>10}  {:>10}  {:>10}  {:>9}  {:>12}\n", "-", "-", "-", "-", slices);
            continue;
        }
        fmt::print("{:>10.1f}  {:>10.1f}  {:>10.1f}  {:>9.2f}  {:>12}\n", median(values), quantile(values, 0.1),
                   quantile(values, 0.9), median(values) / *floor, slices);
    }
}

nlohmann::ordered_json to_json(const std::vector<Measurement>& measurements, AttachRung rung, uint32_t rounds) {
    utsname system{};
    uname(&system);
    nlohmann::ordered_json json = {{"version", MEMTRACE_VERSION},
                                   {"kernel", system.release},
                                   {"attach", rung_name(rung)},
                                   {"rounds", rounds},
                                   {"unit", "ns for one malloc and its free"},
                                   {"results", nlohmann::json::array()}};
    for (const Measurement& measurement : measurements) {
        const std::vector<double>& values = measurement.round_medians_ns;
        nlohmann::ordered_json result = {{"frames", measurement.shape.frames},
                                         {"live_blocks", measurement.shape.live_blocks},
                                         {"tracer", measurement.tracer},
                                         {"quiet_slices", measurement.quiet_slices},
                                         {"slices", measurement.slices}};
        if (const auto floor = floor_ns(measurements, measurement.shape); floor && !values.empty()) {
            result["median"] = median(values);
            result["p10"] = quantile(values, 0.1);
            result["p90"] = quantile(values, 0.9);
            result["ratio_to_empty"] = median(values) / *floor;
        }
        json["results"].push_back(std::move(result));
    }
    return json;
}

/// What two columns of a program are to each other, round by round.
std::vector<double> ratios(const std::vector<double>& above, const std::vector<double>& below) {
    std::vector<double> result;
    for (size_t round = 0; round < std::min(above.size(), below.size()); ++round)
        result.push_back(above[round] / below[round]);
    return result;
}

void print_programs(const std::vector<ProgramMeasurement>& programs) {
    fmt::print("\n{:<8}  {:>10}  {:>10}  {:>10}  {:>12}  {:>12}  {:>6}  {:>6}\n", "program", "none, s", "empty, s",
               "memtrace, s", "empty/none", "mt/empty", "p10", "p90");
    for (const ProgramMeasurement& program : programs) {
        const std::vector<double> to_empty = ratios(program.memtrace_seconds, program.empty_seconds);
        fmt::print("{:<8}  {:>10.2f}  {:>10.2f}  {:>10.2f}  {:>12.2f}  {:>12.2f}  {:>6.2f}  {:>6.2f}\n",
                   program.program, median(program.none_seconds), median(program.empty_seconds),
                   median(program.memtrace_seconds), median(ratios(program.empty_seconds, program.none_seconds)),
                   median(to_empty), quantile(to_empty, 0.1), quantile(to_empty, 0.9));
    }
}

void add_programs(nlohmann::ordered_json& json, const std::vector<ProgramMeasurement>& programs) {
    for (const ProgramMeasurement& program : programs)
        json["programs"].push_back(
            {{"program", program.program},
             {"none_seconds", median(program.none_seconds)},
             {"empty_seconds", median(program.empty_seconds)},
             {"memtrace_seconds", median(program.memtrace_seconds)},
             {"ratio_to_empty", median(ratios(program.memtrace_seconds, program.empty_seconds))}});
}

Result<void> print_links() {
    fmt::print("\n{:<8}  {:>7}  {:>11}  {:>11}\n", "rung", "probes", "attach, ms", "detach, ms");
    for (const AttachRung rung : {AttachRung::session, AttachRung::multi}) {
        if (!kernel_has_rung(rung)) continue;
        const auto times = measure_links(rung, 5);
        if (!times) return times.error();
        fmt::print("{:<8}  {:>7}  {:>11.1f}  {:>11.1f}\n", rung_name(rung), times->probes, times->attach_ms,
                   times->detach_ms);
    }
    return {};
}

Result<void> print_reports(TargetProcess& target, AttachRung rung) {
    const auto reading = measure_reading(target, MEMTRACE_BUILD_DIR "/memtrace", rung, BENCH_MAX_LIVE_BLOCKS);
    if (!reading) return reading.error();
    fmt::print("\na report with {} live blocks: {:.1f} ms, the first one {:.1f} ms\n", BENCH_MAX_LIVE_BLOCKS,
               median(reading->later_ms), reading->first_ms);
    constexpr uint32_t children = 1000;
    const auto ends = measure_ends(MEMTRACE_BUILD_DIR "/memtrace", rung, children);
    if (!ends) return ends.error();
    fmt::print("{} children come and go in {:.2f} s: memtrace takes {:.2f} s of a core, and reports {:.0f} ms later\n",
               children, ends->children_seconds, ends->memtrace_seconds, ends->report_ms);
    return {};
}

Result<void> run_program(const Settings& settings, AttachRung rung) {
    const auto measured = measure_programs(MEMTRACE_BUILD_DIR "/memtrace", rung, settings.rounds, settings.program);
    if (!measured) return measured.error();
    if (measured->empty()) return Error{settings.program, "not a program of the bench, or not installed"};
    print_programs(*measured);
    return {};
}

Result<void> run(const Settings& settings) {
    const AttachRung rung = settings.rung ? *settings.rung : best_rung();
    if (!settings.program.empty()) return run_program(settings, rung);
    Result<TargetProcess> target = TargetProcess::start(MEMTRACE_BUILD_DIR "/tests/bench/bench_target");
    if (!target) return target.error();
    std::vector<std::unique_ptr<Tracer>> tracers;
    tracers.push_back(make_no_tracer());
    tracers.push_back(make_detached(rung));
    tracers.push_back(make_empty_probes(rung));
    tracers.push_back(make_memtrace(MEMTRACE_BUILD_DIR "/memtrace", rung, std::nullopt));
    tracers.push_back(make_memtrace(MEMTRACE_BUILD_DIR "/memtrace", rung, "512K"));

    const Result<std::vector<Measurement>> measurements = measure(*target, tracers, shapes, settings.rounds);
    if (!measurements) return measurements.error();
    print_table(*measurements);
    const auto programs = measure_programs(MEMTRACE_BUILD_DIR "/memtrace", rung, std::max(settings.rounds / 3, 3u));
    if (!programs) return programs.error();
    print_programs(*programs);
    if (auto printed = print_links(); !printed) return printed;
    if (auto printed = print_reports(*target, rung); !printed) return printed;
    nlohmann::ordered_json results = to_json(*measurements, rung, settings.rounds);
    add_programs(results, *programs);
    const std::string json = results.dump();
    fmt::print("\n{}\n", json);
    if (settings.json_path.empty()) return {};
    std::ofstream file(settings.json_path);
    file << json << '\n';
    file.close();
    if (!file) return Error{"cannot write " + settings.json_path, "the file took no data"};
    return {};
}

}  // namespace
}  // namespace memtrace

int main(int argc, char** argv) {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    if (!arguments.empty() && (arguments[0] == "-h" || arguments[0] == "--help")) {
        std::fputs(memtrace::usage.data(), stdout);
        return 0;
    }
    const auto settings = memtrace::parse_settings(arguments);
    const memtrace::Result<void> done = settings ? memtrace::run(*settings) : settings.error();
    if (done) return 0;
    memtrace::log_error(done.error());
    return static_cast<int>(done.error().status);
}
