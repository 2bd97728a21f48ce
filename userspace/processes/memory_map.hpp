// What of each mapping of a process is in memory, and where its threads' stacks are. Uses base only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "processes/mappings.hpp"

namespace memtrace {

/// One mapping and what of it is in memory (Rss and Pss of /proc/PID/smaps, proc(5)), in bytes.
struct ResidentMapping {
    Mapping mapping;
    uint64_t rss_bytes = 0;
    uint64_t pss_bytes = 0;  // with each shared page divided by the number of those that have it
};

/// Parses the text of /proc/PID/smaps. An Error names the first line that is none. Pure.
Result<std::vector<ResidentMapping>> parse_resident_mappings(std::string_view text);

/// All mappings of `pid`, by address. The kernel walks all its pages: 11 us a MiB in pages of 4 KiB (measured on Linux
/// 6.18 in a virtual machine). It holds the lock of the process's mappings while it walks one of them, and a thread
/// that wants to map or unmap waits for it (fs/proc/task_mmu.c, m_start to m_stop); page faults do not, since
/// Linux 6.4. So it is read once a report and never in between. Errors: no_such_target, not_privileged. Thread-safe.
Result<std::vector<ResidentMapping>> read_resident_mappings(pid_t pid);

/// Stack pointers of the threads of `pid` that wait in the kernel now (/proc/PID/task/TID/syscall); those that run show
/// none. Empty without the rights of ptrace(2). Thread-safe.
std::vector<uint64_t> read_stack_pointers(pid_t pid);

}  // namespace memtrace
