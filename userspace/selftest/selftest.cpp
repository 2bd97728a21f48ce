#include "selftest/selftest.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "selftest/comparison.hpp"
#include "selftest/started_program.hpp"
#include "selftest/workload_image.hpp"

namespace memtrace {
namespace {

using Json = nlohmann::json;

/// One run; `head` is what a bug report has to say whatever comes of it.
struct Run {
    std::string head;
    Comparison comparison;
    double seconds = 0;
};

Result<Fd> workload_file() {
    const std::span<const char> image = workload_image();
    Fd file(memfd_create("memtrace_selftest", MFD_CLOEXEC));
    if (!file) return Error{"cannot make a file in memory", errno_text(errno)};
    std::span<const char> left = image;
    while (!left.empty()) {
        const ssize_t written = write(file.get(), left.data(), left.size());
        if (written <= 0) return Error{"cannot write to a file in memory", errno_text(errno)};
        left = left.subspan(static_cast<size_t>(written));
    }
    return file;
}

/// This program's own file, also where its name has come to be another one's.
Result<Fd> own_program() {
    Fd file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    if (!file) return Error{"cannot open /proc/self/exe", errno_text(errno)};
    return file;
}

/// The next record of that type; others are passed over.
Result<Json> next_record(StartedProgram& tracer, std::string_view type) {
    for (;;) {
        auto line = tracer.read_line();
        if (!line) return std::move(line).error();
        Json record = Json::parse(*line, nullptr, false);
        if (!record.is_object()) return Error{"memtrace", "wrote a line that is no JSON object"};
        if (record.value("type", "") == type) return record;
    }
}

/// The tracing is over before it should be: why has been said on stderr by it.
Error early_end(StartedProgram& tracer, Error error) {
    const int status = tracer.wait().value_or(0);
    if (status == 0) return error;
    error = {"the tracing", fmt::format("ended with status {}", status), ""};
    for (const ExitStatus known : {ExitStatus::kernel_lacks_feature, ExitStatus::not_privileged,
                                   ExitStatus::no_allocator, ExitStatus::no_such_target})
        if (status == static_cast<int>(known)) error.status = known;
    return error;
}

std::vector<std::string> tracer_arguments(const std::vector<std::string>& options, pid_t pid) {
    std::vector<std::string> arguments = {"memtrace", "--format", "json", "--quiet", "--no-forecast"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.insert(arguments.end(), {"--top", "0", "--pid", fmt::format("{}", pid), "3600"});
    return arguments;
}

Result<Json> truth_of(StartedProgram& workload) {
    if (auto told = workload.write_line("go"); !told) return std::move(told).error();
    auto line = workload.read_line();
    if (!line) return std::move(line).error();
    Json truth = Json::parse(*line, nullptr, false);
    if (!truth.is_object()) return Error{"the traced program", "wrote a line that is no JSON object"};
    return truth;
}

Result<void> trace(const std::vector<std::string>& options, Run& run) {
    auto program = workload_file();
    if (!program) return std::move(program).error();
    auto memtrace = own_program();
    if (!memtrace) return std::move(memtrace).error();
    auto workload = StartedProgram::start(program->get(), {"selftest"});
    if (!workload) return std::move(workload).error();
    if (auto ready = workload->read_line(); !ready) return std::move(ready).error();
    auto tracer = StartedProgram::start(memtrace->get(), tracer_arguments(options, workload->pid()));
    if (!tracer) return std::move(tracer).error();
    const auto start = next_record(*tracer, "start");
    if (!start) return early_end(*tracer, start.error());
    run.head += fmt::format(", rung {}, stacks by {}", start->value("attach", "?"), start->value("unwinder", "?"));
    // From this record on nothing is missed.
    if (const auto attached = next_record(*tracer, "process"); !attached) return early_end(*tracer, attached.error());
    const auto truth = truth_of(*workload);
    if (!truth) return truth.error();
    tracer->send_signal(SIGINT);
    const auto report = next_record(*tracer, "report");
    if (!report) return early_end(*tracer, report.error());
    run.comparison = compare(*truth, *report);
    const auto status = tracer->wait();
    if (status != 0) return Error{"the tracing", status ? fmt::format("ended with status {}", *status) : "did not end"};
    workload->end_input();
    if (workload->wait() != 0) return Error{"the traced program", "did not end as it should"};
    return {};
}

std::string head_text() {
    utsname system{};
    uname(&system);
    return fmt::format("memtrace {} on {} {} {}, {} cpus", MEMTRACE_VERSION, system.sysname, system.release,
                       system.machine, sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace

SelfTestResult run_selftest(const std::vector<std::string>& options) {
    signal(SIGPIPE, SIG_IGN);
    Run run{.head = head_text(), .comparison = {}};
    const auto begin = std::chrono::steady_clock::now();
    const auto outcome = trace(options, run);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (!outcome)
        return {fmt::format("{}\nfailed: {}: {}\n", run.head, outcome.error().what, outcome.error().why),
                outcome.error().status};
    if (run.comparison.differences.empty())
        return {fmt::format("{}\nexact: all {} figures are as the traced program counted them, in {:.1f} s\n", run.head,
                            run.comparison.compared, took.count())};
    std::string text = fmt::format("{}\nNOT exact, {} of {} figures are wrong:\n", run.head,
                                   run.comparison.differences.size(), run.comparison.compared);
    for (const std::string& difference : run.comparison.differences)
        text += "  " + difference + '\n';
    return {text, ExitStatus::failure};
}

}  // namespace memtrace
