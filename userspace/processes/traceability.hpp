// Why a process must not or cannot be traced, told before it is tried. Uses base only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace memtrace {

/// Of one process, from /proc/PID/status and what may be opened there.
struct TraceFacts {
    bool is_memtrace = false;  // this process
    bool is_kernel_thread = false;
    bool has_ended = false;  // a zombie, or its parent has not yet taken note
    bool is_seccomp_filtered = false;
    pid_t tracer = 0;  // a debugger, strace ...; 0: none
    uint64_t threads = 0;
    bool has_changed_user = false;        // its effective user is not its real one
    std::optional<uid_t> denied_by = {};  // the owner, when its mappings may not be read
};

/// One clause for a line or a record ("is a kernel thread"), none when the process may be traced. `kills_filtered`: the
/// answer of uretprobes_kill_filtered(). Pure.
std::optional<std::string> reason_not_to_trace(const TraceFacts& facts, bool kills_filtered);

/// None when there is no such process (any more). Thread-safe.
std::optional<TraceFacts> read_trace_facts(pid_t pid, const std::string& proc = "/proc");

/// On x86-64 since Linux 6.11 a return probe ends in a system call of the target's. Until seccomp let it pass without
/// asking the filter (6.14, and later 6.12 and 6.13), a filter that does not know it kills the process. Finds out with
/// two children of its own, once; false on other architectures.
bool uretprobes_kill_filtered();

/// The three above for one process; the children are started for the first filtered one. None for a process that is no
/// more: that is not its fault, and attaching will tell.
std::optional<std::string> reason_not_to_trace(pid_t pid);

}  // namespace memtrace
