#include "cli/session_setup.hpp"

#include <algorithm>
#include <utility>

#include "cli/user_allocators.hpp"

namespace memtrace {

SessionOptions session_options(const Options& options, const AllocatorTable& table) {
    SessionOptions session{.table = &table,
                           .rung = std::nullopt,
                           .max_live_blocks = options.max_live_blocks,
                           .max_sites = options.call_sites(),
                           .ring_size_bytes = options.ring_bytes(),
                           .max_stack_frames = options.max_stack_frames,
                           .min_size_bytes = options.min_size_bytes,
                           .max_size_bytes = options.max_size_bytes,
                           .traces_blocks = options.traces_events,
                           .folds_stacks = options.depth > 0,
                           .sees_system_calls = options.sees_system_calls,
                           .samples = options.sample_bytes.has_value() || options.max_overhead.has_value(),
                           .sampling_mean_bytes = options.sample_bytes.value_or(0)};
    // Where there is one process it may fill the tables.
    if (!options.has_one_process()) {
        session.max_process_blocks = options.max_live_blocks / 2;
        session.max_process_sites = options.call_sites() / 2;
    }
    if (options.max_process_blocks) session.max_process_blocks = *options.max_process_blocks;
    if (options.max_process_sites) session.max_process_sites = *options.max_process_sites;
    if (options.depth > 0) session.max_stack_frames = std::min(options.depth, options.max_stack_frames);
    switch (options.attach) {
        case AttachChoice::best:
            break;
        case AttachChoice::session:
            session.rung = AttachRung::session;
            break;
        case AttachChoice::multi:
            session.rung = AttachRung::multi;
            break;
        case AttachChoice::perf:
            session.rung = AttachRung::perf;
            break;
    }
    return session;
}

ScopeOptions scope_options(const Options& options) {
    return {.executables = options.executables,
            .cgroups = options.cgroups,
            .containers = options.containers,
            .follows_children = options.follows_children,
            .traces_all = options.traces_all,
            .is_from_birth = options.is_from_birth,
            .waits = options.waits_for_targets};
}

Result<void> fill_table(const Options& options, AllocatorTable& table) {
    for (const std::string& prefix : options.symbol_prefixes)
        table.add_prefix(prefix);
    if (options.traces_go_fully) table.trace_go_fully();
    const auto functions = user_functions_of(options);
    if (!functions) return functions.error();
    for (const UserFunction& function : *functions)
        if (auto added = table.add_function(function.function()); !added) return added;
    return {};
}

std::vector<Capability> needed_capabilities(const Options& options) {
    // The kernel's statistics of program runs are switched on anew each second, for cap_sys_admin only; with perf
    // events the probes of a library that is loaded later need it, too.
    std::vector<Capability> needed = {
        Capability::bpf,        Capability::perfmon,         Capability::sys_admin,
        Capability::sys_ptrace, Capability::dac_read_search, Capability::checkpoint_restore};
    if (options.has_future_targets()) needed.push_back(Capability::sys_nice);
    if (!options.command.empty()) needed.push_back(Capability::kill);
    return needed;
}

}  // namespace memtrace
