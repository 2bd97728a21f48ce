#include "tracing/scope.hpp"

#include <fcntl.h>
#include <fmt/format.h>
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
std::string cgroup_of_container(std::string_view path, const std::string& id) {
    const size_t at = path.find(id);
    return std::string(at == std::string_view::npos ? path : path.substr(0, path.find('/', at)));
}

/// The kernel tells of a new control group a moment before its directory can be seen.
Fd open_new_directory(const std::string& path) {
    constexpr int tries = 20;
    constexpr useconds_t pause_us = 50;
    for (int tried = 0;; ++tried) {
        Fd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (directory || errno != ENOENT || tried == tries) return directory;
        usleep(pause_us);
    }
}

}  // namespace

Result<TargetScope> TargetScope::open(const ScopeOptions& options) {
    TargetScope scope;
    scope.follows_children_ = options.follows_children;
    scope.traces_all_ = options.traces_all;
    scope.is_from_birth_ = options.is_from_birth;
    for (const std::string& executable : options.executables)
        scope.executables_.emplace_back(executable, search_path());
    for (const std::string& text : options.cgroups)
        scope.cgroups_.push_back({.text = text});
    for (const std::string& text : options.containers)
        scope.cgroups_.push_back({.text = text, .is_container = true});
    if (scope.cgroups_.empty()) return scope;
    if (scope.cgroups_.size() > MT_MAX_CGROUPS)
        return Error{"control groups", fmt::format("{} are too many", scope.cgroups_.size()),
                     fmt::format("name {} at most, or one above them", int{MT_MAX_CGROUPS}), ExitStatus::usage};
    auto mount = find_cgroup_mount();
    if (!mount) return std::move(mount).error();
    scope.mount_ = std::move(mount).value();
    for (WantedCgroup& wanted : scope.cgroups_) {
        auto found = scope.find(wanted);
        const bool is_waited_for =
            options.waits && !found && found.error().status == ExitStatus::no_such_target && wanted.path.empty();
        if (!found && !is_waited_for) return std::move(found).error();
    }
    return scope;
}

Result<void> TargetScope::find(WantedCgroup& wanted) const {
    if (wanted.is_container) {
        const auto path = path_of_container(wanted);
        return path ? open_directory(wanted, *path) : Result<void>(path.error());
    }
    const auto cgroup = find_cgroup(mount_, wanted.text);
    return cgroup ? open_directory(wanted, cgroup->path) : Result<void>(cgroup.error());
}

Result<std::string> TargetScope::path_of_container(const WantedCgroup& wanted) const {
    const std::vector<Container> containers = list_containers();
    const auto chosen = choose_container(containers, wanted.text);
    if (!chosen) return chosen.error();
    for (const pid_t pid : *chosen ? list_processes("/proc") : std::vector<pid_t>()) {
        const auto of_process = container_of(pid);
        const auto path = cgroup_of(pid);
        if (of_process && of_process->id == (*chosen)->id && path) return cgroup_of_container(*path, of_process->id);
    }
    return Error{wanted.name(), "no process is in it", "an id, its beginning or a name", ExitStatus::no_such_target};
}

Result<void> TargetScope::open_directory(WantedCgroup& wanted, const std::string& path) const {
    const auto directory = cgroup_directory(mount_, path);
    Fd opened = directory ? open_new_directory(*directory) : Fd();
    const auto id = cgroup_id(mount_, path);
    if (!opened || !id) return Error{wanted.name(), "no such control group", "", ExitStatus::no_such_target};
    wanted.path = path;
    wanted.directory = std::move(opened);
    wanted.id = *id;
    return {};
}

bool TargetScope::is_at(const WantedCgroup& wanted, std::string_view path) const {
    if (wanted.path == path) return true;
    if (!wanted.is_container) {
        const std::vector<std::string> candidates = cgroup_candidates(mount_, wanted.text);
        return std::ranges::find(candidates, path) != candidates.end();
    }
    auto container = container_in(path);
    if (!container) return false;
    read_container_names(*container);
    return is_meant_container(*container, wanted.text);
}

std::vector<uint32_t> TargetScope::on_cgroup_made(std::string_view path) {
    std::vector<uint32_t> made;
    for (uint32_t index = 0; index < cgroups_.size(); ++index) {
        WantedCgroup& wanted = cgroups_[index];
        if (!is_at(wanted, path)) continue;
        const auto container = wanted.is_container ? container_in(path) : std::nullopt;
        const std::string top = container ? cgroup_of_container(path, container->id) : std::string(path);
        // One below it, or of another hierarchy, is not it.
        if (!wanted.path.empty() && cgroup_id(mount_, wanted.path) == wanted.id) continue;
        if (open_directory(wanted, top)) made.push_back(index);
    }
    return made;
}

std::vector<uint32_t> TargetScope::find_missing() {
    std::vector<uint32_t> found;
    for (uint32_t index = 0; index < cgroups_.size(); ++index)
        if (cgroups_[index].path.empty() && find(cgroups_[index])) found.push_back(index);
    return found;
}

std::vector<uint32_t> TargetScope::on_process_moved(pid_t pid) {
    std::vector<uint32_t> made;
    for (uint32_t index = 0; index < cgroups_.size(); ++index) {
        WantedCgroup& wanted = cgroups_[index];
        if (!wanted.is_container || !wanted.path.empty()) continue;
        const auto container = container_of(pid);
        const auto path = cgroup_of(pid);
        if (container && path && is_meant_container(*container, wanted.text) &&
            open_directory(wanted, cgroup_of_container(*path, container->id)))
            made.push_back(index);
    }
    return made;
}

std::optional<std::string> TargetScope::on_cgroup_gone(std::string_view path) {
    for (WantedCgroup& wanted : cgroups_) {
        // Another hierarchy may have one at the same path.
        if (wanted.path != path || cgroup_id(mount_, path) == wanted.id) continue;
        wanted.directory = Fd();
        wanted.path.clear();
        return wanted.name();
    }
    return std::nullopt;
}

std::vector<std::string> TargetScope::missing() const {
    std::vector<std::string> names;
    for (const WantedCgroup& wanted : cgroups_)
        if (wanted.path.empty()) names.push_back(wanted.name());
    return names;
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

std::vector<CgroupHandle> TargetScope::cgroups() const {
    std::vector<CgroupHandle> handles;
    for (const WantedCgroup& cgroup : cgroups_)
        handles.push_back({.fd = cgroup.directory ? cgroup.directory.get() : -1, .id = cgroup.id});
    return handles;
}

bool TargetScope::wants(pid_t pid) const {
    if (traces_all_) return true;
    if (std::ranges::any_of(executables_, [&](const Executable& executable) { return executable.matches(pid); }))
        return true;
    const auto path = cgroups_.empty() ? std::nullopt : cgroup_of(pid);
    return path && std::ranges::any_of(cgroups_, [&](const WantedCgroup& cgroup) {
               return !cgroup.path.empty() && is_in_cgroup(*path, cgroup.path);
           });
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
