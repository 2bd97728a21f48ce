#include "processes/process.hpp"

#include <elf.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/capabilities.hpp"

#include "processes/cgroup.hpp"
#include "processes/proc_file.hpp"

namespace memtrace {
namespace {

constexpr uint64_t kernel_thread_flag = 0x00200000;  // PF_KTHREAD, include/linux/sched.h

/// The fields of /proc/PID/stat after comm, the first of them being field 3 (state) of proc(5). comm itself may hold
/// parentheses and spaces, hence the last ')'.
std::vector<std::string_view> fields_after_comm(std::string_view stat) {
    std::vector<std::string_view> fields;
    const size_t end_of_comm = stat.rfind(')');
    if (end_of_comm == std::string_view::npos) return fields;
    stat.remove_prefix(end_of_comm + 1);
    while (!stat.empty()) {
        const size_t begin = stat.find_first_not_of(" \n");
        if (begin == std::string_view::npos) break;
        stat.remove_prefix(begin);
        const size_t size = std::min(stat.find_first_of(" \n"), stat.size());
        fields.push_back(stat.substr(0, size));
        stat.remove_prefix(size);
    }
    return fields;
}

uint64_t number_of_field(const std::vector<std::string_view>& fields, size_t number) {
    const size_t index = number - 3;
    uint64_t value = 0;
    if (index < fields.size())
        std::from_chars(fields[index].data(), fields[index].data() + fields[index].size(), value);
    return value;
}

/// A file may be called "x (deleted)" in truth; then it is still there under just that name.
bool is_same_file(pid_t pid, const std::string& path) {
    struct stat of_exe {
    }, of_path{};
    if (::stat(proc_path(pid, "exe").c_str(), &of_exe) != 0) return false;
    if (::stat((proc_path(pid, "root") + path).c_str(), &of_path) != 0) return false;
    return of_exe.st_dev == of_path.st_dev && of_exe.st_ino == of_path.st_ino;
}

/// 0, or the errno of the failure to read the link.
int read_exe(ProcessInfo& info) {
    std::string target(PATH_MAX, '\0');
    const ssize_t size = ::readlink(proc_path(info.pid, "exe").c_str(), target.data(), target.size());
    if (size < 0) return errno;
    target.resize(static_cast<size_t>(size));
    constexpr std::string_view suffix = " (deleted)";
    if (target.ends_with(suffix) && !is_same_file(info.pid, target)) {
        target.resize(target.size() - suffix.size());
        info.is_exe_deleted = true;
    }
    info.exe = std::move(target);
    struct stat file {};
    if (::stat(proc_path(info.pid, "exe").c_str(), &file) == 0) {
        info.exe_device = file.st_dev;
        info.exe_inode = file.st_ino;
    }
    return 0;
}

/// The field of /proc/PID/statm (proc(5)), which counts pages; the first one is 0.
std::optional<uint64_t> read_statm_bytes(pid_t pid, int field) {
    auto statm = read_whole_file(proc_path(pid, "statm"));
    const auto* text = std::get_if<std::string>(&statm);
    if (!text) return std::nullopt;
    size_t start = 0;
    for (; field > 0; --field) {
        const size_t space = text->find(' ', start);
        if (space == std::string::npos) return std::nullopt;
        start = space + 1;
    }
    uint64_t pages = 0;
    const auto parsed = std::from_chars(text->data() + start, text->data() + text->size(), pages);
    if (parsed.ec != std::errc()) return std::nullopt;
    return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

Error process_error(std::string what, int error_number) {
    if (error_number == ENOENT && access("/proc/self", F_OK) != 0)
        return {std::move(what), "/proc is not mounted here", "mount -t proc proc /proc"};
    if (error_number == ENOENT || error_number == ESRCH || error_number == EINVAL)
        return {std::move(what), "no such process", "it may have ended; `ps -e` lists the processes",
                ExitStatus::no_such_target};
    if (error_number == EACCES || error_number == EPERM)
        return {std::move(what), reason_of_refusal(std::array{Capability::sys_ptrace}), privilege_hint(),
                ExitStatus::not_privileged};
    return {std::move(what), errno_text(error_number)};
}

Result<ProcessInfo> read_process(pid_t pid) {
    const std::string what = fmt::format("process {}", pid);
    if (pid <= 0) return process_error(what, ESRCH);
    auto stat = read_whole_file(proc_path(pid, "stat"));
    if (const int* error_number = std::get_if<int>(&stat)) return process_error(what, *error_number);
    auto comm = read_whole_file(proc_path(pid, "comm"));
    if (const int* error_number = std::get_if<int>(&comm)) return process_error(what, *error_number);

    ProcessInfo info;
    info.pid = pid;
    info.comm = std::get<std::string>(std::move(comm));
    if (info.comm.ends_with('\n')) info.comm.pop_back();
    const auto fields = fields_after_comm(std::get<std::string>(stat));
    info.ppid = static_cast<pid_t>(number_of_field(fields, 4));
    info.is_kernel_thread = (number_of_field(fields, 9) & kernel_thread_flag) != 0;
    info.start_time = number_of_field(fields, 22);
    if (info.start_time == 0) return process_error(what, ESRCH);
    int error_number = read_exe(info);
    if (error_number == ENOENT)
        if (const pid_t thread = thread_with_memory(pid); thread != pid) {
            info.pid = thread;
            error_number = read_exe(info);
            info.pid = pid;
        }
    if (error_number == EACCES || error_number == EPERM) return process_error(what, error_number);
    info.cgroup = cgroup_of(pid);
    info.container = container_of(pid);
    return info;
}

bool run_same_program(pid_t first, pid_t second) {
    const Result<ProcessInfo> one = read_process(first);
    const Result<ProcessInfo> other = read_process(second);
    if (!one || !other || one->exe.empty() || other->exe.empty()) return false;
    const auto name_of = [](std::string_view path) { return path.substr(path.rfind('/') + 1); };
    return name_of(one->exe) == name_of(other->exe) || one->comm == other->comm;
}

bool has_lost_first_thread(pid_t pid) {
    auto stat = read_whole_file(proc_path(pid, "stat"));
    const auto* text = std::get_if<std::string>(&stat);
    if (!text) return false;
    const auto fields = fields_after_comm(*text);
    return fields.size() > 17 && (fields[0] == "Z" || fields[0] == "X") && number_of_field(fields, 20) > 1;
}

pid_t thread_with_memory(pid_t pid) {
    if (!has_lost_first_thread(pid)) return pid;
    std::error_code no_error;
    for (const auto& entry : std::filesystem::directory_iterator(proc_path(pid, "task"), no_error)) {
        const std::string name = entry.path().filename();
        pid_t thread = 0;
        std::from_chars(name.data(), name.data() + name.size(), thread);
        if (thread > 0 && thread != pid && read_statm_bytes(thread, 0).value_or(0) > 0) return thread;
    }
    return pid;
}

std::optional<uint64_t> read_rss_bytes(pid_t pid) {
    const auto bytes = read_statm_bytes(pid, 1);
    return bytes && *bytes > 0 ? bytes : read_statm_bytes(thread_with_memory(pid), 1);
}

std::optional<uint64_t> read_mapped_bytes(pid_t pid) {
    const auto bytes = read_statm_bytes(pid, 0);
    return bytes && *bytes > 0 ? bytes : read_statm_bytes(thread_with_memory(pid), 0);
}

std::optional<uint64_t> read_interpreter_base(pid_t pid) {
    struct Entry {
        uint64_t type;
        uint64_t value;
    };
    const auto read = read_whole_file(proc_path(pid, "auxv"));
    const auto* bytes = std::get_if<std::string>(&read);
    if (bytes == nullptr) return std::nullopt;
    for (size_t offset = 0; offset + sizeof(Entry) <= bytes->size(); offset += sizeof(Entry)) {
        Entry entry{};
        std::memcpy(&entry, bytes->data() + offset, sizeof entry);
        if (entry.type == AT_BASE && entry.value != 0) return entry.value;
    }
    return std::nullopt;
}

}  // namespace memtrace
