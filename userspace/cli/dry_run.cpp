#include "cli/dry_run.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "base/log.hpp"
#include "base/text.hpp"
#include "cli/placement_list.hpp"
#include "cli/probe_plan.hpp"
#include "cli/session_setup.hpp"
#include "processes/executable.hpp"
#include "processes/loaded_files.hpp"
#include "processes/traceability.hpp"

namespace memtrace {
namespace {

struct Plan {
    std::vector<PlacedProbe> probes;
    std::vector<std::string> targets;
    size_t files = 0;
};

void add_files(Plan& plan, const std::vector<PlannedFile>& files) {
    for (const PlannedFile& file : files) {
        if (!file.is_new || file.probes->points.empty()) continue;
        ++plan.files;
        for (const ProbePoint& point : file.probes->points)
            plan.probes.push_back({file.path.substr(file.path.rfind('/') + 1), point});
    }
}

/// All descendants of `pids` that run now are added.
void add_descendants(std::vector<pid_t>& pids) {
    const std::vector<pid_t> all = list_processes("/proc");
    for (size_t before = 0; before != pids.size();) {
        before = pids.size();
        for (const pid_t pid : all) {
            if (std::ranges::find(pids, pid) != pids.end()) continue;
            const auto process = read_process(pid);
            if (process && std::ranges::find(pids, process->ppid) != pids.end()) pids.push_back(pid);
        }
    }
}

Result<void> add_process(Plan& plan, ProbePlan& probe_plan, pid_t pid) {
    const auto planned = probe_plan.of_process(pid);
    if (!planned) return planned.error();
    const std::string name = fmt::format("{}[{}]", printable(planned->process.comm), pid);
    if (const auto reason = reason_not_to_trace(pid)) return Error{name, *reason, "", ExitStatus::no_allocator};
    for (const Error& unreadable : planned->unreadable)
        log_warning(unreadable.what + ": " + unreadable.why);
    if (!planned->has_allocator()) return Error{name, "no allocator that can be traced", "", ExitStatus::no_allocator};
    add_files(plan, planned->files);
    plan.targets.push_back(name);
    return {};
}

/// What processes that do not run yet will load, as far as it is known.
Result<void> add_later_files(Plan& plan, ProbePlan& probe_plan, const Options& options, const TargetScope& scope) {
    if (!options.command.empty()) {
        const CommandPath command = find_command(options.command.front(), environ);
        if (command.status != CommandStatus::found) {
            Error error = command_error(options.command.front(), command.status);
            error.status = static_cast<ExitStatus>(command.status);
            return error;
        }
        const auto files = files_loaded_by(command.path, environ);
        if (!files) return files.error();
        add_files(plan, probe_plan.of_files(*files));
        plan.targets.push_back(options.command.front() + " (to be started)");
    }
    for (const std::string& program : scope.program_paths())
        if (const auto files = files_loaded_by(program, environ)) add_files(plan, probe_plan.of_files(*files));
    return {};
}

}  // namespace

Result<std::string> dry_run_text(const Options& options) {
    AllocatorTable table;
    if (auto filled = fill_table(options, table); !filled) return std::move(filled).error();
    const auto scope = TargetScope::open(scope_options(options));
    if (!scope) return scope.error();
    std::vector<pid_t> pids = options.pids;
    for (const pid_t pid : scope->running())
        if (std::ranges::find(pids, pid) == pids.end()) pids.push_back(pid);
    if (scope->follows_children()) add_descendants(pids);
    ProbePlan probe_plan(table);
    Plan plan;
    std::optional<Error> first_error;
    for (const pid_t pid : pids)
        if (auto added = add_process(plan, probe_plan, pid); !added) {
            if (pids.size() > 1) log_warning(added.error().what + ": " + added.error().why);
            if (!first_error) first_error = std::move(added).error();
        }
    if (auto added = add_later_files(plan, probe_plan, options, *scope); !added) return std::move(added).error();
    if (plan.targets.empty() && first_error) return *first_error;
    std::string text = placement_table(plan.probes, table, std::nullopt);
    text +=
        fmt::format("# {} probes in {} files, for {}{}; nothing was set\n", plan.probes.size(), plan.files,
                    plan.targets.empty() ? "nothing that runs now" : fmt::format("{}", fmt::join(plan.targets, ", ")),
                    scope->can_grow() ? " and what comes later" : "");
    return text;
}

}  // namespace memtrace
