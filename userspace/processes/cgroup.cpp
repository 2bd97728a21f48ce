#include "processes/cgroup.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "base/text.hpp"
#include "processes/proc_file.hpp"

namespace memtrace {
namespace {

constexpr std::string_view mount_hint =
    "mount it: mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified";

constexpr std::string_view deleted_suffix = " (deleted)";

/// Takes the next word off `text`.
std::string_view take_word(std::string_view& text) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(word.size());
    return word;
}

std::string_view take_line(std::string_view& text) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    return line;
}

bool is_octal(std::string_view text) {
    return text.size() == 3 && text.find_first_not_of("01234567") == std::string_view::npos;
}

/// Blanks, newlines and backslashes of a path are \ooo in mountinfo (proc(5)).
std::string unescaped(std::string_view text) {
    std::string path;
    for (size_t index = 0; index < text.size(); ++index) {
        const std::string_view code = text.substr(index + 1, 3);
        if (text[index] != '\\' || !is_octal(code)) {
            path += text[index];
            continue;
        }
        path += static_cast<char>((code[0] - '0') * 64 + (code[1] - '0') * 8 + (code[2] - '0'));
        index += 3;
    }
    return path;
}

/// Of a line of mountinfo: ID PARENT DEVICE ROOT DIRECTORY OPTIONS [TAG...] - TYPE SOURCE OPTIONS.
std::optional<CgroupMount> cgroup_mount_of(std::string_view line) {
    const size_t separator = line.find(" - ");
    if (separator == std::string_view::npos || !line.substr(separator + 3).starts_with("cgroup2 ")) return std::nullopt;
    for (int skipped = 0; skipped < 3; ++skipped)
        take_word(line);
    CgroupMount mount;
    mount.top = unescaped(take_word(line));
    mount.directory = unescaped(take_word(line));
    return mount;
}

std::string without_end_slashes(std::string path) {
    while (path.size() > 1 && path.ends_with('/'))
        path.pop_back();
    return path;
}

struct CgroupPaths {
    std::optional<std::string> unified;
    std::vector<std::string> others;
};

CgroupPaths read_cgroup_paths(pid_t pid, const std::string& proc) {
    CgroupPaths paths;
    const auto content = read_whole_file(fmt::format("{}/{}/cgroup", proc, pid));
    if (std::holds_alternative<int>(content)) return paths;
    std::string_view rest = std::get<std::string>(content);
    while (!rest.empty()) {
        const std::string_view line = take_line(rest);  // HIERARCHY:CONTROLLERS:PATH, cgroups(7)
        const size_t second = line.find(':', line.find(':') + 1);
        if (second == std::string_view::npos) continue;
        std::string_view path = line.substr(second + 1);
        if (path.ends_with(deleted_suffix)) path.remove_suffix(deleted_suffix.size());
        if (line.starts_with("0::"))
            paths.unified = path;
        else
            paths.others.emplace_back(path);
    }
    return paths;
}

}  // namespace

Result<CgroupMount> find_cgroup_mount(const std::string& mountinfo_path) {
    const auto content = read_whole_file(mountinfo_path);
    if (const int* error_number = std::get_if<int>(&content)) return Error{mountinfo_path, errno_text(*error_number)};
    std::string_view rest = std::get<std::string>(content);
    std::optional<CgroupMount> best;
    while (!rest.empty()) {
        auto mount = cgroup_mount_of(take_line(rest));
        if (mount && (!best || mount->top.size() < best->top.size())) best = std::move(mount);
    }
    if (best) return *std::move(best);
    return Error{"cgroups", "no cgroup2 file system is mounted", std::string(mount_hint)};
}

std::optional<std::string> cgroup_directory(const CgroupMount& mount, std::string_view path) {
    if (!is_in_cgroup(path, mount.top)) return std::nullopt;
    if (mount.top != "/") path.remove_prefix(mount.top.size());
    return mount.directory + std::string(path);
}

std::optional<uint64_t> cgroup_id(const CgroupMount& mount, std::string_view path) {
    struct stat status {};
    const auto directory = cgroup_directory(mount, path);
    if (!directory || ::stat(directory->c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) return std::nullopt;
    return status.st_ino;
}

std::vector<std::string> cgroup_candidates(const CgroupMount& mount, const std::string& text) {
    // Two slashes in front are a root of their own for POSIX, not here.
    const size_t begin = text.find_first_not_of('/');
    std::string path = "/" + (begin == std::string::npos ? "" : text.substr(begin));
    path = without_end_slashes(std::filesystem::path(path).lexically_normal().string());
    const std::string top = mount.top == "/" ? "" : mount.top;
    if (is_in_cgroup(path, mount.directory)) path = top + path.substr(mount.directory.size());
    if (path.empty()) path = "/";
    return {path, top + path};
}

Result<Cgroup> find_cgroup(const CgroupMount& mount, const std::string& text) {
    for (const std::string& candidate : cgroup_candidates(mount, text))
        if (const auto id = cgroup_id(mount, candidate)) return Cgroup{candidate, *id};
    return Error{fmt::format("cgroup {}", printable(text)), "no such cgroup",
                 fmt::format("they are the directories below {}; `cat /proc/PID/cgroup` tells a process's",
                             printable(mount.directory)),
                 ExitStatus::no_such_target};
}

std::optional<std::string> cgroup_of(pid_t pid, const std::string& proc) {
    return read_cgroup_paths(pid, proc).unified;
}

std::vector<std::string> cgroup_paths_of(pid_t pid, const std::string& proc) {
    CgroupPaths paths = read_cgroup_paths(pid, proc);
    if (paths.unified) paths.others.insert(paths.others.begin(), *paths.unified);
    return std::move(paths.others);
}

bool is_in_cgroup(std::string_view path, std::string_view ancestor) {
    if (ancestor == "/" || ancestor.empty()) return true;
    return path.starts_with(ancestor) && (path.size() == ancestor.size() || path[ancestor.size()] == '/');
}

}  // namespace memtrace
