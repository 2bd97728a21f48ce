#include "processes/program_facts.hpp"

#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>

#include "processes/proc_file.hpp"

namespace memtrace {
namespace {

constexpr std::string_view deleted_suffix = " (deleted)";
constexpr size_t arguments_searched = 16;  // options of an interpreter before its script
constexpr size_t max_script_line = 256;    // BINPRM_BUF_SIZE, include/uapi/linux/binfmts.h

std::optional<std::string> read_link(const std::string& path) {
    std::string target(PATH_MAX, '\0');
    const ssize_t size = ::readlink(path.c_str(), target.data(), target.size());
    if (size <= 0) return std::nullopt;
    target.resize(static_cast<size_t>(size));
    return target;
}

std::vector<std::string> split_arguments(std::string_view cmdline) {
    std::vector<std::string> arguments;
    while (!cmdline.empty()) {
        const size_t size = std::min(cmdline.find('\0'), cmdline.size());
        arguments.emplace_back(cmdline.substr(0, size));
        cmdline.remove_prefix(std::min(size + 1, cmdline.size()));
    }
    return arguments;
}

/// The words of a file's first line after "#!"; empty when it has none, or is no regular file.
std::vector<std::string> interpreter_line(const Fd& place) {
    struct stat status {};
    if (!place || ::fstat(place.get(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
    const Fd file(::open(fmt::format("/proc/self/fd/{}", place.get()).c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
    std::array<char, max_script_line> bytes;
    const ssize_t size = file ? ::read(file.get(), bytes.data(), bytes.size()) : -1;
    if (size < 2) return {};
    std::string_view line(bytes.data(), static_cast<size_t>(size));
    if (!line.starts_with("#!")) return {};
    line = line.substr(2, line.find('\n') - 2);
    std::vector<std::string> words;
    for (size_t begin = line.find_first_not_of(" \t\r"); begin != std::string_view::npos;
         begin = line.find_first_not_of(" \t\r", begin)) {
        const size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
        words.emplace_back(line.substr(begin, end - begin));
        begin = end;
    }
    return words;
}

/// `#!/usr/bin/env -S python3 -u` names python3.
std::string_view interpreter_of_env(const std::vector<std::string>& words) {
    for (size_t index = 1; index < words.size(); ++index)
        if (!words[index].starts_with('-') && words[index].find('=') == std::string::npos) return words[index];
    return {};
}

/// Is the running program the one that the script's first line asks for? python3.11 is python3.
bool is_interpreter(pid_t pid, const std::string& proc, const ProgramFacts& facts,
                    const std::vector<std::string>& words) {
    if (words.empty()) return false;
    std::string_view name = base_name(words.front());
    if (name == "env")
        name = base_name(interpreter_of_env(words));
    else if (file_id(open_in_process(pid, proc, words.front())) == facts.exe_id)
        return true;
    return !name.empty() && (base_name(facts.exe).starts_with(name) || facts.comm == name.substr(0, 15));
}

}  // namespace

std::string_view base_name(std::string_view path) {
    return path.substr(path.rfind('/') + 1);
}

std::optional<FileId> file_id(const Fd& file) {
    struct stat status {};
    if (!file || ::fstat(file.get(), &status) != 0) return std::nullopt;
    return FileId{status.st_dev, status.st_ino};
}

Fd open_in_process(pid_t pid, const std::string& proc, const std::string& path) {
    const std::string directory = fmt::format("{}/{}/", proc, pid);
    const Fd root(::open((directory + "root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!root) return Fd();
    std::string below_root = path;
    if (!path.starts_with('/')) {
        // The links are seen from our root: what lies above the process's own is taken off.
        const auto working_directory = read_link(directory + "cwd");
        const auto root_path = read_link(directory + "root");
        if (!working_directory || !root_path) return Fd();
        const std::string_view above = *root_path == "/" ? std::string_view() : std::string_view(*root_path);
        if (!working_directory->starts_with(above)) return Fd();
        below_root = working_directory->substr(above.size()) + "/" + path;
    }
    open_how how{};
    how.flags = O_PATH | O_CLOEXEC;
    how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
    const long fd = ::syscall(SYS_openat2, root.get(), below_root.c_str(), &how, sizeof(how));
    return Fd(static_cast<int>(fd));
}

void find_script(pid_t pid, const std::string& proc, ProgramFacts& facts) {
    const size_t end = std::min(facts.arguments.size(), arguments_searched);
    for (size_t index = 1; index < end; ++index) {
        const std::string& argument = facts.arguments[index];
        if (argument.empty() || argument.starts_with('-')) continue;
        const Fd place = open_in_process(pid, proc, argument);
        if (!is_interpreter(pid, proc, facts, interpreter_line(place))) continue;
        facts.script = argument;
        facts.script_id = file_id(place);
        return;
    }
}

std::optional<ProgramFacts> read_program_facts(pid_t pid, const std::string& proc) {
    const std::string directory = fmt::format("{}/{}/", proc, pid);
    ProgramFacts facts;
    auto exe = read_link(directory + "exe");
    const Fd exe_file(::open((directory + "exe").c_str(), O_PATH | O_CLOEXEC));
    const auto exe_id = file_id(exe_file);
    if (!exe || !exe_id) return std::nullopt;
    facts.exe_id = *exe_id;
    facts.exe = std::move(*exe);
    facts.root = read_link(directory + "root").value_or("/");
    // A file may be called "x (deleted)" in truth.
    if (facts.exe.ends_with(deleted_suffix) && file_id(open_in_process(pid, proc, facts.exe)) != facts.exe_id)
        facts.exe.resize(facts.exe.size() - deleted_suffix.size());
    auto comm = read_whole_file(directory + "comm");
    auto cmdline = read_whole_file(directory + "cmdline");
    if (std::holds_alternative<int>(comm) || std::holds_alternative<int>(cmdline)) return std::nullopt;
    facts.comm = std::get<std::string>(std::move(comm));
    if (facts.comm.ends_with('\n')) facts.comm.pop_back();
    facts.arguments = split_arguments(std::get<std::string>(cmdline));
    return facts;
}

}  // namespace memtrace
