// What a tracer may leave behind in the kernel and in its target. Uses bpftool and /proc.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

namespace memtrace::e2e {

/// Programs, maps and links of the kernel that are there now: "prog 12 on_call", "map 7 live_blocks", "link 3 type".
std::set<std::string> bpf_objects();
/// Those that are there beside `before`, after the kernel has had time to take away what nobody holds any more. Empty:
/// nothing is left.
std::string bpf_objects_left(const std::set<std::string>& before);

/// The code of each file that the process maps is the file's: no probe stands. Else where it differs.
std::string changed_code(pid_t pid);

/// A letter of proc(5): "R", "S", "T" (stopped), "t" (stopped by a debugger), "Z"; empty: no such process.
std::string process_state(pid_t pid);

}  // namespace memtrace::e2e
