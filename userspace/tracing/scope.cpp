#include "tracing/scope.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>

#include "processes/loaded_files.hpp"
#include "processes/proc_file.hpp"

namespace memtrace {
namespace {

namespace fs = std::filesystem;

std::string last_part(const std::string& path) {
    return path.substr(path.rfind('/') + 1);
}

std::string canonical_or_same(const std::string& path) {
    std::error_code no_error;
    const fs::path canonical = fs::canonical(path, no_error);
    return canonical.empty() ? path : canonical.string();
}

bool is_path(const std::string& executable) {
    return executable.find('/') != std::string::npos;
}

/// The words of the command line, as the process has them now.
std::vector<std::string> command_line(pid_t pid) {
    const auto read = read_whole_file(proc_path(pid, "cmdline"));
    const auto* text = std::get_if<std::string>(&read);
    std::vector<std::string> words;
    if (text == nullptr) return words;
    for (size_t begin = 0; begin < text->size();) {
        const size_t end = std::min(text->find('\0', begin), text->size());
        words.push_back(text->substr(begin, end - begin));
        begin = end + 1;
    }
    return words;
}

}  // namespace

Result<TargetScope> TargetScope::open(ScopeOptions options) {
    TargetScope scope(std::move(options));
    for (const std::string& path : scope.options_.cgroups) {
        Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (!fd)
            return Error{"control group " + path, errno_text(errno), "paths are those of the cgroup2 file system",
                         ExitStatus::no_such_target};
        scope.cgroups_.push_back(std::move(fd));
    }
    return scope;
}

std::vector<std::string> TargetScope::program_names() const {
    std::set<std::string> names;
    for (const std::string& executable : options_.executables)
        names.insert(last_part(executable));
    for (const std::string& path : program_paths())
        names.insert(last_part(canonical_or_same(path)));
    return {names.begin(), names.end()};
}

std::vector<int> TargetScope::cgroup_fds() const {
    std::vector<int> fds;
    for (const Fd& fd : cgroups_)
        fds.push_back(fd.get());
    return fds;
}

std::vector<std::string> TargetScope::program_paths() const {
    std::vector<std::string> paths;
    for (const std::string& executable : options_.executables) {
        const CommandPath found = find_command(executable, environ);
        if (found.status == CommandStatus::found) paths.push_back(found.path);
    }
    return paths;
}

bool TargetScope::runs_wanted_program(const ProcessInfo& process) const {
    if (options_.executables.empty()) return false;
    const std::vector<std::string> words = command_line(process.pid);
    const auto is_wanted = [&](const std::string& executable) {
        const auto is_it = [&](const std::string& path) {
            if (!is_path(executable)) return last_part(path) == executable;
            return path == executable || canonical_or_same(path) == canonical_or_same(executable);
        };
        if (is_it(process.exe)) return true;
        // A symbolic link's name, a script's name: the words that were typed.
        return std::any_of(words.begin(), words.begin() + static_cast<long>(std::min<size_t>(words.size(), 3)), is_it);
    };
    return std::ranges::any_of(options_.executables, is_wanted);
}

bool TargetScope::is_in_wanted_cgroup(pid_t pid) const {
    if (cgroups_.empty()) return false;
    const auto read = read_whole_file(proc_path(pid, "cgroup"));
    const auto* text = std::get_if<std::string>(&read);
    const size_t unified = text ? text->find("0::") : std::string::npos;
    if (unified == std::string::npos) return false;
    const std::string_view line = std::string_view(*text).substr(unified + 3);
    const std::string_view path = line.substr(0, line.find('\n'));
    return std::ranges::any_of(options_.cgroups, [&](const std::string& cgroup) {
        const std::string wanted = canonical_or_same(cgroup);
        const size_t at = wanted.find(path);
        return at != std::string::npos && !path.empty() && path != "/" && at + path.size() == wanted.size();
    });
}

bool TargetScope::wants(const ProcessInfo& process) const {
    return options_.traces_all || runs_wanted_program(process) || is_in_wanted_cgroup(process.pid);
}

bool TargetScope::wanted(const std::string& comm, const std::vector<std::string>& paths) const {
    if (options_.traces_all || !options_.cgroups.empty()) return true;
    return std::ranges::any_of(options_.executables, [&](const std::string& executable) {
        if (!is_path(executable)) return true;  // the kernel side has compared the name
        const std::string canonical = canonical_or_same(executable);
        return last_part(executable).starts_with(comm) ||
               std::ranges::any_of(paths, [&](const std::string& path) { return path == canonical; });
    });
}

std::vector<pid_t> TargetScope::running() const {
    std::vector<pid_t> pids;
    if (options_.executables.empty() && options_.cgroups.empty() && !options_.traces_all) return pids;
    std::error_code no_error;
    for (const auto& entry : fs::directory_iterator("/proc", no_error)) {
        const std::string name = entry.path().filename();
        pid_t pid = 0;
        if (std::from_chars(name.data(), name.data() + name.size(), pid).ec != std::errc() || pid == getpid()) continue;
        const auto process = read_process(pid);
        if (process && !process->is_kernel_thread && wants(*process)) pids.push_back(pid);
    }
    return pids;
}

}  // namespace memtrace
