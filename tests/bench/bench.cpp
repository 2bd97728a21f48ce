// The bench's command line and its two forms of output.
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "bench/measure.hpp"
#include "bench/statistics.hpp"

namespace memtrace {
namespace {

constexpr std::array<uint32_t, 2> depths = {6, 22};
constexpr std::string_view usage =
    "bench [--rounds N] [--attach session|multi|perf] [--json FILE]\n"
    "Nanoseconds for one malloc(64) and its free in a tight loop, without a tracer, with empty probes and under "
    "memtrace.\n";

struct Settings {
    uint32_t rounds = 15;
    std::optional<AttachRung> rung;
    std::string json_path;
};

Result<Settings> parse_settings(const std::vector<std::string>& arguments) {
    Settings settings;
    for (size_t index = 0; index + 1 < arguments.size(); index += 2) {
        const std::string& name = arguments[index];
        const std::string& value = arguments[index + 1];
        if (name == "--rounds") settings.rounds = static_cast<uint32_t>(std::strtoul(value.c_str(), nullptr, 10));
        if (name == "--json") settings.json_path = value;
        for (const AttachRung rung : {AttachRung::session, AttachRung::multi, AttachRung::perf})
            if (name == "--attach" && value == rung_name(rung)) settings.rung = rung;
        const bool is_known = name == "--rounds" || name == "--json" || (name == "--attach" && settings.rung);
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
std::optional<double> floor_ns(const std::vector<Measurement>& measurements, uint32_t frames) {
    for (const Measurement& measurement : measurements)
        if (measurement.tracer == "empty" && measurement.frames == frames && !measurement.round_medians_ns.empty())
            return median(measurement.round_medians_ns);
    return std::nullopt;
}

void print_table(const std::vector<Measurement>& measurements) {
    fmt::print("{:>6}  {:<8}  {:>10}  {:>10}  {:>10}  {:>9}  {:>12}\n", "frames", "tracer", "ns a pair", "p10", "p90",
               "to empty", "quiet slices");
    for (const Measurement& measurement : measurements) {
        const std::vector<double>& values = measurement.round_medians_ns;
        const std::optional<double> floor = floor_ns(measurements, measurement.frames);
        const std::string slices = fmt::format("{}/{}", measurement.quiet_slices, measurement.slices);
        fmt::print("{:>6}  {:<8}  ", measurement.frames, measurement.tracer);
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
        nlohmann::ordered_json result = {{"frames", measurement.frames},
                                         {"tracer", measurement.tracer},
                                         {"quiet_slices", measurement.quiet_slices},
                                         {"slices", measurement.slices}};
        if (const auto floor = floor_ns(measurements, measurement.frames); floor && !values.empty()) {
            result["median"] = median(values);
            result["p10"] = quantile(values, 0.1);
            result["p90"] = quantile(values, 0.9);
            result["ratio_to_empty"] = median(values) / *floor;
        }
        json["results"].push_back(std::move(result));
    }
    return json;
}

Result<void> run(const Settings& settings) {
    const AttachRung rung = settings.rung ? *settings.rung : best_rung();
    Result<TargetProcess> target = TargetProcess::start(MEMTRACE_BUILD_DIR "/tests/bench/bench_target");
    if (!target) return target.error();
    Result<std::unique_ptr<Tracer>> empty_probes = make_empty_probes(rung);
    if (!empty_probes) return empty_probes.error();
    std::vector<std::unique_ptr<Tracer>> tracers;
    tracers.push_back(make_no_tracer());
    tracers.push_back(std::move(*empty_probes));
    tracers.push_back(make_memtrace(MEMTRACE_BUILD_DIR "/memtrace", rung));

    const Result<std::vector<Measurement>> measurements = measure(*target, tracers, depths, settings.rounds);
    if (!measurements) return measurements.error();
    print_table(*measurements);
    const std::string json = to_json(*measurements, rung, settings.rounds).dump();
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
