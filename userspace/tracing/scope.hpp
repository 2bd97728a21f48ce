// Who is to be traced, beside the processes that were named by their ids. Uses processes and kernel.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "base/text.hpp"
#include "kernel/session.hpp"
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
    bool waits = true;  // for control groups and containers that do not exist yet
};

/// For one thread.
class TargetScope {
  public:
    /// Error: no_such_target when a control group or a container does not exist and is not to be waited for.
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
    /// The control groups, also those that do not exist yet; their directories stay this object's.
    std::vector<CgroupHandle> cgroups() const;
    /// A control group was made at `path`: the numbers, in cgroups(), of those that it is.
    std::vector<uint32_t> on_cgroup_made(std::string_view path);
    /// A process has come into a container that is waited for under a name that its control group does not tell.
    std::vector<uint32_t> on_process_moved(pid_t pid);
    /// Looks again for control groups that were not there; those that are, as on_cgroup_made.
    std::vector<uint32_t> find_missing();
    /// One of cgroups() was removed: what it was asked for by. It may be made again.
    std::optional<std::string> on_cgroup_gone(std::string_view path);
    /// What is waited for, for people.
    std::vector<std::string> missing() const;

    /// Whether the process is wanted: by what it runs or where it is.
    bool wants(pid_t pid) const;
    /// ... of one that has ended, which the kernel side has found and which mapped the files at `paths`.
    bool wanted(pid_t pid, const std::vector<std::string>& paths) const;
    /// All that are wanted and run now; memtrace itself is not among them.
    std::vector<pid_t> running() const;

  private:
    struct WantedCgroup {
        std::string text;  // as it was asked for
        bool is_container = false;
        std::string path = {};  // as cgroup_of has it; empty: it does not exist yet
        Fd directory = {};
        uint64_t id = 0;

        std::string name() const { return (is_container ? "container " : "control group ") + printable(text); }
    };

    TargetScope() = default;
    Result<void> find(WantedCgroup& wanted) const;
    Result<std::string> path_of_container(const WantedCgroup& wanted) const;
    Result<void> open_directory(WantedCgroup& wanted, const std::string& path) const;
    bool is_at(const WantedCgroup& wanted, std::string_view path) const;

    std::vector<Executable> executables_;
    CgroupMount mount_;  // where there are control groups
    std::vector<WantedCgroup> cgroups_;
    bool follows_children_ = false;
    bool traces_all_ = false;
    bool is_from_birth_ = false;
};

}  // namespace memtrace
