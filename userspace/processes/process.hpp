// What /proc tells about one process. Uses base only. Bytes that the process chose itself (comm, paths) are handed on
// as they are: show them through base/text.hpp.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "processes/container.hpp"

namespace memtrace {

struct ProcessInfo {
    pid_t pid = 0;
    pid_t ppid = 0;
    std::string comm;  // any bytes but NUL
    std::string exe;   // absolute path in the process's own root; empty for a kernel thread or a zombie
    bool is_exe_deleted = false;
    uint64_t exe_device = 0;  // with exe_inode, as stat(2) gives them: another file at the same path has others
    uint64_t exe_inode = 0;
    bool is_kernel_thread = false;
    std::optional<std::string> cgroup;   // of version 2; none where the host has none
    std::optional<Container> container;  // none: in no container that is known by its cgroup
    uint64_t start_time = 0;             // clock ticks after boot; with the pid it names one process for ever
};

/// What is known about `pid`. No such process: no_such_target; exe not readable: not_privileged. Thread-safe.
Result<ProcessInfo> read_process(pid_t pid);

/// Both run a program of one file name (replaced files too), or go by one comm. False when one has ended. Thread-safe.
bool run_same_program(pid_t first, pid_t second);

/// Whether its first thread has ended while others live on: /proc/PID then shows no memory, and links for the process
/// alone find none. Thread-safe.
bool has_lost_first_thread(pid_t pid);
/// A thread of the process that has its memory: `pid` itself, but where the first thread has ended another one.
/// /proc/THREAD then shows what /proc/PID does else. Thread-safe.
pid_t thread_with_memory(pid_t pid);

/// Resident memory in bytes, none when the process has ended. The kernel's own figure may lag by some pages a cpu
/// (/proc/PID/statm sums per-cpu counters roughly, proc(5)). Thread-safe.
std::optional<uint64_t> read_rss_bytes(pid_t pid);

/// All mappings of the process in bytes, touched or not; none when it has ended. Thread-safe.
std::optional<uint64_t> read_mapped_bytes(pid_t pid);

/// Where the program's interpreter, the dynamic linker, is mapped (AT_BASE, getauxval(3)); none: it has none, or the
/// process has ended. Thread-safe.
std::optional<uint64_t> read_interpreter_base(pid_t pid);

/// "no such process" or "not privileged" as it follows from the errno of an access to /proc/PID; `what` names the
/// thing.
Error process_error(std::string what, int error_number);

}  // namespace memtrace
