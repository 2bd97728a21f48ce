// Control groups of version 2, and those of a hybrid host's unified mount; no controller is needed. Uses base only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace memtrace {

/// Where cgroup2 is mounted, and which cgroup is the mount's top: "/", or that of a container whose mount it is.
struct CgroupMount {
    std::string directory;
    std::string top = "/";
};

/// A cgroup that exists.
struct Cgroup {
    std::string path;  // from the root of all cgroups, as /proc/PID/cgroup has it
    uint64_t id = 0;   // inode of its directory; what bpf_get_current_cgroup_id() returns in it
};

/// The cgroup2 mount with the highest top, from a file of the form of /proc/self/mountinfo. None: failure, and a hint
/// how to mount it.
Result<CgroupMount> find_cgroup_mount(const std::string& mountinfo_path = "/proc/self/mountinfo");

/// The paths, as /proc/PID/cgroup has them, that `text` may mean: a directory of the mount by its whole path, or a
/// cgroup's path with or without a leading '/'.
std::vector<std::string> cgroup_candidates(const CgroupMount& mount, const std::string& text);
/// The first of the candidates that exists. No such cgroup: no_such_target.
Result<Cgroup> find_cgroup(const CgroupMount& mount, const std::string& text);
/// Where the mount has cgroup `path`; none when it is not below the mount's top.
std::optional<std::string> cgroup_directory(const CgroupMount& mount, std::string_view path);
/// None when it is gone.
std::optional<uint64_t> cgroup_id(const CgroupMount& mount, std::string_view path);

/// The "0::" line of /proc/PID/cgroup without "(deleted)", relative to our own cgroup namespace; none when the process
/// has ended or its host has no cgroup2. Thread-safe.
std::optional<std::string> cgroup_of(pid_t pid, const std::string& proc = "/proc");
/// Is `path` the cgroup `ancestor` or one below it?
bool is_in_cgroup(std::string_view path, std::string_view ancestor);

/// All paths of /proc/PID/cgroup, that of version 2 first: some container engines use version 1 alone.
std::vector<std::string> cgroup_paths_of(pid_t pid, const std::string& proc = "/proc");

}  // namespace memtrace
