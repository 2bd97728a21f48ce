#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <optional>

#include "base/text.hpp"
#include "processes/mappings.hpp"
#include "processes/proc_file.hpp"
#include "processes/process.hpp"

namespace memtrace {
namespace {

enum class Check { inode_or_link, inode, device_and_inode };

/// Of a link in map_files: the kernel's name for the mapped file is that of `mapping`.
bool has_same_name(const std::string& link, const Mapping& mapping) {
    std::string target(PATH_MAX, '\0');
    const ssize_t size = ::readlink(link.c_str(), target.data(), target.size());
    if (size < 0) return false;
    Mapping linked;
    set_mapping_name(linked, std::string_view(target).substr(0, static_cast<size_t>(size)));
    return linked.path == mapping.path;
}

/// Overlay file systems may show another inode than stat() does, and a chroot another path, but not both.
bool is_mapped_file(const std::string& path, const struct stat& status, const Mapping& mapping, Check check) {
    if (check == Check::device_and_inode && status.st_dev != mapping.device) return false;
    if (status.st_ino == mapping.inode) return true;
    return check == Check::inode_or_link && has_same_name(path, mapping);
}

/// Opens `path` for reading if it is what `check` asks for; else none and the reason is added to `tried`. O_PATH comes
/// first because opening a FIFO would block and opening a device may act.
std::optional<Fd> open_checked(const std::string& path, const Mapping& mapping, Check check, std::string& tried) {
    if (!tried.empty()) tried += "; ";
    tried += printable(path) + ": ";
    const Fd place(::open(path.c_str(), O_PATH | O_CLOEXEC));
    struct stat status {};
    if (!place || ::fstat(place.get(), &status) != 0) {
        tried += errno_text(errno);
        return std::nullopt;
    }
    if (!S_ISREG(status.st_mode) || !is_mapped_file(path, status, mapping, check)) {
        tried += S_ISREG(status.st_mode) ? "another file" : "no regular file";
        return std::nullopt;
    }
    Fd file(::open(fmt::format("/proc/self/fd/{}", place.get()).c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
    if (file) return file;
    tried += errno_text(errno);
    return std::nullopt;
}

std::string map_files_path(pid_t pid, const Mapping& mapping) {
    return fmt::format("/proc/{}/map_files/{:x}-{:x}", pid, mapping.start, mapping.end);
}

/// The mapping that now lies where `mapping` was: its ends move when neighbours are joined or a part is protected.
std::optional<Mapping> present_mapping(pid_t pid, const Mapping& mapping) {
    const auto mappings = read_mappings(pid);
    if (!mappings) return std::nullopt;
    for (const Mapping& present : *mappings)
        if (present.start < mapping.end && mapping.start < present.end &&
            (present.inode == mapping.inode || present.path == mapping.path))
            return present;
    return std::nullopt;
}

}  // namespace

Result<Fd> open_mapped_file(pid_t process, const Mapping& mapping) {
    const pid_t pid = thread_with_memory(process);
    const std::string what = fmt::format("file {} of process {}", printable(mapping.path), process);
    if (!mapping.has_file()) return Error{what, "no file is mapped there"};
    std::string tried;
    const std::string exact_path = map_files_path(pid, mapping);
    if (auto file = open_checked(exact_path, mapping, Check::inode_or_link, tried)) return *std::move(file);
    if (const auto present = present_mapping(pid, mapping)) {
        const std::string present_path = map_files_path(pid, *present);
        if (present_path != exact_path)
            if (auto file = open_checked(present_path, mapping, Check::inode_or_link, tried)) return *std::move(file);
    }
    const std::string root_path = proc_path(pid, "root") + mapping.path;
    if (auto file = open_checked(root_path, mapping, Check::device_and_inode, tried)) return *std::move(file);
    if (auto file = open_checked(mapping.path, mapping, Check::inode, tried)) return *std::move(file);
    if (auto file = open_checked(proc_path(pid, "exe"), mapping, Check::device_and_inode, tried))
        return *std::move(file);
    return Error{
        what, "cannot be opened (" + tried + ")",
        "deleted and container files need CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE, and a process that still runs"};
}

}  // namespace memtrace
