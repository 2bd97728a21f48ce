// The mappings of a process as /proc/PID/maps lists them, and how to open a mapped file even when its path is gone or
// belongs to a container. Uses base only. Paths are bytes chosen by others and are never trusted: a file is handed out
// only when it is a regular file and the mapped one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace memtrace {

/// One mapping: [start, end) shows the file from `file_offset` on.
struct Mapping {
    uint64_t start = 0;
    uint64_t end = 0;
    uint64_t file_offset = 0;
    bool is_readable = false;
    bool is_writable = false;
    bool is_executable = false;
    bool is_shared = false;
    bool is_deleted = false;  // the kernel said " (deleted)" after the path
    uint64_t device = 0;      // makedev(major, minor) as the kernel prints it; need not be stat()'s on overlay or btrfs
    uint64_t inode = 0;
    std::string path;  // empty for anonymous memory; "[vdso]", "[heap]" ... for the kernel's names

    /// True when a file of the file system stands behind it.
    bool has_file() const { return inode != 0 && !path.empty() && path.front() == '/'; }
    friend bool operator==(const Mapping&, const Mapping&) = default;
};

/// Parses the text of /proc/PID/maps (proc(5): a newline in a path is "\012", nothing else is escaped). An Error names
/// the first line that is no mapping. Pure.
Result<std::vector<Mapping>> parse_mappings(std::string_view text);

/// All mappings of `pid`, by address. No such process: no_such_target; not allowed: not_privileged. Thread-safe.
Result<std::vector<Mapping>> read_mappings(pid_t pid);

/// Sets `path` and `is_deleted` from a name as maps and PERF_RECORD_MMAP2 give it ("/x (deleted)", "//anon").
void set_mapping_name(Mapping& mapping, std::string_view kernel_name);

/// Opens the file behind `mapping` for reading: /proc/PID/map_files (works for deleted and container files; needs
/// CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE), else its path below /proc/PID/root when device and inode agree, else its
/// path on the host when the inode agrees, else /proc/PID/exe when that is it (a program whose file is gone). Only
/// regular files; never blocks on a FIFO. The Error says which ways were tried.
Result<Fd> open_mapped_file(pid_t pid, const Mapping& mapping);

}  // namespace memtrace
