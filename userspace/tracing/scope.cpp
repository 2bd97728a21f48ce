#include "tracing/scope.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/text.hpp"
#include "processes/container.hpp"
#include "processes/loaded_files.hpp"

namespace memtrace {
namespace {

std::string search_path() {
    const char* path = std::getenv("PATH");
    return path ? path : "/bin:/usr/bin";
}

std::string canonical_or_same(const std::string& path) {
    std::error_code no_error;
    const std::filesystem::path canonical = std::filesystem::canonical(path, no_error);
    return canonical.empty() ? path : canonical.string();
}

/// `path` up to the directory that is named after the container.
std::string cgroup_of_container(const std::string& path, const std::string& id) {
    const size_t at = path.find(id);
    return at == std::string::npos ? path : path.substr(0, path.find('/', at));
}

}  // namespace

Result<TargetScope> TargetScope::open(const ScopeOptions& options) {
    TargetScope scope;
    scope.follows_children_ = options.follows_children;
    scope.traces_all_ = options.traces_all;
    scope.is_from_birth_ = options.is_from_birth;
    for (const std::string& executable : options.executables)
        scope.executables_.emplace_back(executable, search_path());
    if (options.cgroups.empty() && options.containers.empty()) return scope;
    const auto mount = find_cgroup_mount();
    if (!mount) return mount.error();
    for (const std::string& text : options.cgroups) {
        const auto cgroup = find_cgroup(*mount, text);
        if (!cgroup) return cgroup.error();
        if (auto added = scope.add_cgroup(*mount, cgroup->path); !added) return std::move(added).error();
    }
    for (const std::string& container : options.containers)
        if (auto added = scope.add_container(*mount, container); !added) return std::move(added).error();
    return scope;
}

Result<void> TargetScope::add_cgroup(const CgroupMount& mount, const std::string& path) {
    const std::string below = mount.top == "/" ? path : path.substr(std::min(mount.top.size(), path.size()));
    Fd directory(::open((mount.directory + below).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory) return Error{"control group " + printable(path), errno_text(errno), "", ExitStatus::no_such_target};
    cgroups_.push_back({path, std::move(directory)});
    return {};
}

Result<void> TargetScope::add_container(const CgroupMount& mount, const std::string& container) {
    const std::vector<Container> containers = list_containers();
    const auto chosen = choose_container(containers, container);
    if (!chosen) return chosen.error();
    if (!*chosen)
        return Error{"container " + printable(container), "no process is in it", "an id, its beginning or a name",
                     ExitStatus::no_such_target};
    for (const pid_t pid : list_processes("/proc")) {
        const auto of_process = container_of(pid);
        const auto path = cgroup_of(pid);
        if (of_process && of_process->id == (*chosen)->id && path)
            return add_cgroup(mount, cgroup_of_container(*path, of_process->id));
    }
    return Error{"container " + printable(container), "no process is in it", "", ExitStatus::no_such_target};
}

std::vector<std::string> TargetScope::program_names() const {
    std::set<std::string> names;
    for (const Executable& executable : executables_)
        names.emplace(base_name(executable.text()));
    for (const std::string& path : program_paths())
        names.emplace(base_name(canonical_or_same(path)));
    return {names.begin(), names.end()};
}

std::vector<std::string> TargetScope::program_paths() const {
    std::vector<std::string> paths;
    for (const Executable& executable : executables_) {
        const CommandPath found = find_command(executable.text(), environ);
        if (found.status == CommandStatus::found) paths.push_back(found.path);
    }
    return paths;
}

std::vector<int> TargetScope::cgroup_fds() const {
    std::vector<int> fds;
    for (const WantedCgroup& cgroup : cgroups_)
        fds.push_back(cgroup.directory.get());
    return fds;
}

bool TargetScope::wants(pid_t pid) const {
    if (traces_all_) return true;
    if (std::ranges::any_of(executables_, [&](const Executable& executable) { return executable.matches(pid); }))
        return true;
    const auto path = cgroups_.empty() ? std::nullopt : cgroup_of(pid);
    return path &&
           std::ranges::any_of(cgroups_, [&](const WantedCgroup& cgroup) { return is_in_cgroup(*path, cgroup.path); });
}

bool TargetScope::wanted(pid_t pid, const std::vector<std::string>& paths) const {
    if (traces_all_ || !cgroups_.empty()) return true;
    return std::ranges::any_of(executables_, [&](const Executable& executable) {
        // The kernel side has compared the name.
        if (executable.text().find('/') == std::string::npos) return true;
        return std::ranges::any_of(
            paths, [&](const std::string& path) { return executable.matches(ExecutedFile{.pid = pid, .path = path}); });
    });
}

std::vector<pid_t> TargetScope::running() const {
    std::vector<pid_t> pids;
    if (!finds_targets()) return pids;
    for (const pid_t pid : list_processes("/proc"))
        if (pid != getpid() && wants(pid)) pids.push_back(pid);
    return pids;
}

}  // namespace memtrace
