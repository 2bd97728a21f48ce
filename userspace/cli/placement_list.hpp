// `memtrace list --placement -p PID`: each probe that tracing the process would set. Uses probes/, kernel/ and
// tracing/.
#pragma once

#include <sys/types.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "kernel/trap_price.hpp"
#include "probes/resolve.hpp"

namespace memtrace {

/// A probe, and the name of the file that it is in.
struct PlacedProbe {
    std::string file;
    ProbePoint point;
};

/// A line a probe: file, place, instruction, how the kernel executes it, how the return is seen, what a call costs.
/// Without a price the costs are in traps.
std::string placement_table(std::span<const PlacedProbe> probes, const AllocatorTable& table,
                            const std::optional<TrapPrice>& price);

/// The table for running processes, a file that several of them map once. Errors: no_such_target, not_privileged,
/// no_allocator.
Result<std::string> placement_list(const std::vector<pid_t>& pids);

}  // namespace memtrace
