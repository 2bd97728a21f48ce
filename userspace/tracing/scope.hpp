// Who is to be traced, beside the processes that were named by their ids. Uses processes.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "processes/cgroup.hpp"
#include "processes/executable.hpp"

namespace memtrace {

struct ScopeOptions {
    std::vector<std::string> executables = {};  // as Executable takes them
    std::vector<std::string> cgroups = {};      // as find_cgroup takes them
    std::vector<std::string> containers = {};   // as choose_container takes them
    bool follows_children = false;
    bool traces_all = false;
    bool is_from_birth = false;
};

/// For one thread.
class TargetScope {
  public:
    /// Error: no_such_target when a control group or a container does not exist.
    static Result<TargetScope> open(const ScopeOptions& options);

    /// Probes go on files for everybody from the start.
    bool is_for_all() const { return is_from_birth_ || traces_all_; }
    /// Processes may become targets later that are no descendants of one.
    bool finds_targets() const { return traces_all_ || !executables_.empty() || !cgroups_.empty(); }
    bool can_grow() const { return follows_children() || finds_targets(); }
    bool traces_all() const { return traces_all_; }
    /// What targets fork are targets: what is forked in a control group is in it, and all is of the whole system.
    bool follows_children() const { return follows_children_ || traces_all_ || !cgroups_.empty(); }
    /// Last parts of the paths by which the kernel side is to know the executables.
    std::vector<std::string> program_names() const;
    /// Files that the executables are, as far as they can be found now.
    std::vector<std::string> program_paths() const;
    /// Whether it cannot be known now which files those that are found later will load.
    bool has_unknown_files() const {
        return traces_all_ || !cgroups_.empty() || program_paths().size() < executables_.size();
    }
    /// Directories of the control groups; they stay this object's.
    std::vector<int> cgroup_fds() const;

    /// Whether the process is wanted: by what it runs or where it is.
    bool wants(pid_t pid) const;
    /// ... of one that has ended, which the kernel side has found and which mapped the files at `paths`.
    bool wanted(pid_t pid, const std::vector<std::string>& paths) const;
    /// All that are wanted and run now; memtrace itself is not among them.
    std::vector<pid_t> running() const;

  private:
    struct WantedCgroup {
        std::string path;  // as cgroup_of has it
        Fd directory;
    };

    TargetScope() = default;
    Result<void> add_cgroup(const CgroupMount& mount, const std::string& path);
    Result<void> add_container(const CgroupMount& mount, const std::string& container);

    std::vector<Executable> executables_;
    std::vector<WantedCgroup> cgroups_;
    bool follows_children_ = false;
    bool traces_all_ = false;
    bool is_from_birth_ = false;
};

}  // namespace memtrace
