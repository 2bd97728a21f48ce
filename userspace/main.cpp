// Arguments in, exit status out; everything else is in cli/.
#include <span>

#include "base/last_resort.hpp"
#include "base/log.hpp"
#include "cli/census_command.hpp"
#include "cli/doctor_command.hpp"
#include "cli/dry_run.hpp"
#include "cli/growth_command.hpp"
#include "cli/list_command.hpp"
#include "cli/parse.hpp"
#include "cli/placement_list.hpp"
#include "cli/print.hpp"
#include "cli/trace_command.hpp"
#include "processes/process.hpp"
#include "selftest/selftest.hpp"

namespace {

template <typename... Handlers>
struct Overloaded : Handlers... {
    using Handlers::operator()...;
};
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

int print_or_fail(const memtrace::Result<std::string>& text) {
    if (text) return memtrace::print(*text);
    memtrace::log_error(text.error());
    return static_cast<int>(text.error().status);
}

int print_doctor(const memtrace::Doctor& request) {
    const memtrace::DoctorReport report = memtrace::doctor_report(request.options);
    const int printed = memtrace::print(report.text);
    for (const memtrace::Error& obstacle : report.obstacles)
        memtrace::log_error(obstacle);
    if (printed != 0 || report.obstacles.empty()) return printed;
    return static_cast<int>(report.obstacles.front().status);
}

int print_selftest(const memtrace::SelfTest& request) {
    const memtrace::SelfTestResult result = memtrace::run_selftest(request.options);
    const int printed = memtrace::print(result.text);
    return printed != 0 ? printed : static_cast<int>(result.status);
}

}  // namespace

int main(int argc, char** argv) {
    using namespace memtrace;
    reserve_standard_streams();
    const std::span<const char* const> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
    const auto request = parse_arguments(arguments, run_same_program);
    if (!request) {
        log_error(request.error());
        return static_cast<int>(request.error().status);
    }
    return std::visit(Overloaded{[&](const Options& options) {
                                     if (options.is_dry_run) return print_or_fail(dry_run_text(options));
                                     if (options.shows_growth) return run_growth_command(options);
                                     return run_trace_command(options, arguments);
                                 },
                                 [](const Census& census) { return run_census_command(census); },
                                 [](const ListAllocators&) { return print(allocator_list()); },
                                 [](const ListPlacement& list) { return print_or_fail(placement_list(list.pids)); },
                                 [](const Doctor& doctor) { return print_doctor(doctor); },
                                 [](const SelfTest& selftest) { return print_selftest(selftest); },
                                 [](const ShowText& show) { return print(show.text); }},
                      *request);
}
