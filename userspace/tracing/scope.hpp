// Who is to be traced, beside the processes that were named by their ids. Uses processes.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "processes/process.hpp"

namespace memtrace {

struct ScopeOptions {
    std::vector<std::string> executables = {};  // names, or paths when there is a '/' in them
    std::vector<std::string> cgroups = {};      // paths of directories of the cgroup2 file system
    bool follows_children = false;
    bool traces_all = false;
    bool is_from_birth = false;
};

/// For one thread.
class TargetScope {
  public:
    /// Error: no_such_target when a control group does not exist.
    static Result<TargetScope> open(ScopeOptions options);

    /// Probes go on files for everybody from the start.
    bool is_for_all() const { return options_.is_from_birth || options_.traces_all; }
    /// Processes may become targets later.
    bool can_grow() const { return follows_children() || watches_programs() || !options_.cgroups.empty(); }
    bool finds_targets() const { return watches_programs() || !options_.cgroups.empty() || options_.traces_all; }
    bool traces_all() const { return options_.traces_all; }
    bool watches_programs() const { return !options_.executables.empty(); }
    /// What targets fork are targets. Of a control group it is in it, and of the whole system it is a part.
    bool follows_children() const {
        return options_.follows_children || options_.traces_all || !options_.cgroups.empty();
    }
    /// Last parts of the paths under which the executables can be started.
    std::vector<std::string> program_names() const;
    std::vector<int> cgroup_fds() const;
    /// Files that the executables are, as far as they can be found now.
    std::vector<std::string> program_paths() const;

    /// Whether the process is wanted: by what it runs or where it is.
    bool wants(const ProcessInfo& process) const;
    /// ... of one that has ended since its exec, which ran `comm` and mapped the files at `paths`.
    bool wanted(const std::string& comm, const std::vector<std::string>& paths) const;
    /// ... of the processes that run now.
    std::vector<pid_t> running() const;

  private:
    explicit TargetScope(ScopeOptions options) : options_(std::move(options)) {}
    bool runs_wanted_program(const ProcessInfo& process) const;
    bool is_in_wanted_cgroup(pid_t pid) const;

    ScopeOptions options_;
    std::vector<Fd> cgroups_;
};

}  // namespace memtrace
