#include "cli/doctor_command.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>

#include "base/capabilities.hpp"
#include "base/units.hpp"
#include "cli/doctor_target.hpp"
#include "cli/session_setup.hpp"
#include "kernel/trap_price.hpp"
#include "processes/traceability.hpp"

namespace memtrace {
namespace {

std::string line(std::string_view answer, std::string_view name, std::string_view meaning) {
    return fmt::format("  {:<4} {:<30} {}\n", answer, name, meaning);
}

std::string_view answer_of(FeatureState state) {
    switch (state) {
        case FeatureState::present:
            return "yes";
        case FeatureState::missing:
            return "no";
        case FeatureState::not_permitted:
            return "?";
    }
    return "";
}

std::string kernel_text() {
    utsname system{};
    uname(&system);
    std::string text =
        fmt::format("memtrace {} on {} {} {}\n", MEMTRACE_VERSION, system.sysname, system.release, system.machine);
    text += features_text(kernel_features());
    text += uretprobes_kill_filtered()
                ? line("no", "return probes pass seccomp", "processes with a filter are refused: they would be killed")
                : line("yes", "return probes pass seccomp", "processes with a filter can be traced");
    return text;
}

std::string privileges_text() {
    static constexpr std::array<std::pair<Capability, std::string_view>, 8> uses = {{
        {Capability::bpf, "loads the programs and their tables: nothing works without it"},
        {Capability::perfmon, "reads the memory of targets from probes, follows mappings: nothing works without it"},
        {Capability::sys_ptrace, "processes of other users"},
        {Capability::dac_read_search, "their files, where only they may read them"},
        {Capability::checkpoint_restore, "files that were deleted, files of containers"},
        {Capability::sys_admin, "perf events as the way to attach; measuring what tracing costs"},
        {Capability::sys_nice, "children that come later are attached sooner"},
        {Capability::kill, "hands ^C on to a command with another user"},
    }};
    std::string text =
        fmt::format("privileges of user {}; all others are dropped before recording starts\n", geteuid());
    for (const auto& [capability, use] : uses)
        text += line(has_capability(capability) ? "yes" : "no", capability_name(capability), use);
    return text;
}

std::string price_text(const TrapPrice& price) {
    return fmt::format("a hit costs {:.2f} us, {:.2f} where the instruction is stepped, a return {:.2f} more\n",
                       price.emulated_ns / 1000, price.stepped_ns / 1000, price.return_ns / 1000);
}

/// What loading the programs and attaching to memtrace itself tells; the bytes that a thread takes.
uint64_t try_session(const Options& options, AllocatorTable& table, DoctorReport& report) {
    if (auto filled = fill_table(options, table); !filled) {
        report.obstacles.push_back(std::move(filled).error());
        return 0;
    }
    const SessionOptions wanted = session_options(options, table);
    const auto session = Session::open(wanted);
    if (!session) {
        report.text += fmt::format("the programs cannot be loaded: {}\n", session.error().why);
        report.obstacles.push_back(session.error());
        return 0;
    }
    const TableSizes sizes = (*session)->table_sizes();
    report.text += fmt::format("the programs load, rung {}\n", rung_name((*session)->rung()));
    if (const auto price = measure_trap_price((*session)->rung())) {
        report.text += price_text(*price);
    } else {
        report.text += fmt::format("probes cannot be attached: {}\n", price.error().why);
        report.obstacles.push_back(price.error());
    }
    report.text += tables_text(sizes, wanted);
    return sizes.bytes_a_thread;
}

}  // namespace

std::string features_text(const std::vector<KernelFeature>& features) {
    std::string text;
    for (const KernelFeature& feature : features)
        text += line(answer_of(feature.state), feature.name,
                     fmt::format("{}{}", feature.buys, feature.is_needed ? "; needed" : ""));
    return text;
}

std::string tables_text(const TableSizes& sizes, const SessionOptions& options) {
    std::string text = fmt::format("kernel tables for {} live blocks, {} call sites, a ring of {}\n",
                                   format_count(sizes.max_live_blocks), format_count(options.max_sites),
                                   format_size(options.ring_size_bytes));
    uint64_t total_bytes = 0;
    for (const TableSize& table : sizes.tables) {
        text += fmt::format("  {:<16}  {:>12} entries  {:>10}\n", table.name, format_count(table.entries),
                            format_size(table.memory_bytes));
        total_bytes += table.memory_bytes;
    }
    text += fmt::format("  {:<16}  {:>20}  {:>10}\n", "all", "", format_size(total_bytes));
    text += fmt::format("a live block takes {:.1f} bytes at the limit; a thread of a target {}\n",
                        sizes.bytes_a_live_block, format_size(sizes.bytes_a_thread));
    return text;
}

DoctorReport doctor_report(const Options& options) {
    DoctorReport report{.text = kernel_text() + privileges_text(), .obstacles = {}};
    AllocatorTable table;
    const uint64_t bytes_a_thread = try_session(options, table, report);
    ProbePlan plan(table);
    for (const pid_t pid : options.pids) {
        TargetDiagnosis diagnosis = diagnose_target(pid, plan, bytes_a_thread);
        report.text += diagnosis.text;
        if (diagnosis.obstacle) report.obstacles.push_back(*std::move(diagnosis.obstacle));
    }
    report.text += report.obstacles.empty() ? "tracing will work\n" : "tracing will NOT work\n";
    return report;
}

}  // namespace memtrace
