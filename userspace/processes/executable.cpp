#include "processes/executable.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>

namespace memtrace {
namespace {

constexpr size_t max_comm_size = 15;  // TASK_COMM_LEN without its NUL
/// Programs that are many: which of them runs is told by the name that it was called by.
constexpr std::array<std::string_view, 4> multi_call_programs = {"busybox", "toybox", "coreutils", "busybox.static"};

bool is_multi_call(std::string_view exe) {
    return std::find(multi_call_programs.begin(), multi_call_programs.end(), base_name(exe)) !=
           multi_call_programs.end();
}

/// The first executable file of that name in $PATH; empty when there is none.
std::string find_in(std::string_view search_path, const std::string& name) {
    while (!search_path.empty()) {
        const size_t size = std::min(search_path.find(':'), search_path.size());
        std::string path = std::string(search_path.substr(0, size)) + "/" + name;
        struct stat status {};
        if (size > 0 && ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
            ::access(path.c_str(), X_OK) == 0)
            return path;
        search_path.remove_prefix(std::min(size + 1, search_path.size()));
    }
    return "";
}

/// As ls of `busybox ls`, and of a link that is called ls.
bool is_called(const ProgramFacts& facts, std::string_view name) {
    if (facts.comm == name.substr(0, max_comm_size)) return true;
    if (facts.arguments.empty()) return false;
    if (base_name(facts.arguments[0]) == name) return true;
    return is_multi_call(facts.arguments[0]) && facts.arguments.size() > 1 && facts.arguments[1] == name;
}

std::string absolute_path(const std::string& path) {
    std::error_code failed;
    const std::filesystem::path absolute = std::filesystem::absolute(path, failed);
    return failed ? path : absolute.lexically_normal().string();
}

std::string real_path(const std::string& path) {
    std::error_code failed;
    const std::filesystem::path real = std::filesystem::canonical(path, failed);
    return failed ? path : real.string();
}

}  // namespace

Executable::Executable(std::string text, std::string_view search_path, std::string proc)
    : text_(std::move(text)), is_path_(text_.find('/') != std::string::npos), proc_(std::move(proc)) {
    path_ = is_path_ ? absolute_path(text_) : find_in(search_path, text_);
}

bool Executable::is_our_file(FileId id) const {
    if (path_.empty()) return false;
    const Fd file(::open(path_.c_str(), O_PATH | O_CLOEXEC));
    return file_id(file) == id;
}

bool Executable::matches_path(pid_t pid, const ProgramFacts& facts) const {
    const bool is_applet = is_multi_call(facts.exe) && !is_multi_call(path_);
    if (is_applet && !is_called(facts, base_name(path_))) return false;
    if (is_our_file(facts.exe_id) || (facts.script_id && is_our_file(*facts.script_id))) return true;
    const auto its_file = file_id(open_in_process(pid, proc_, path_));
    if (its_file && (its_file == facts.exe_id || its_file == facts.script_id)) return true;
    // Deleted or replaced: only the path is left of it.
    const std::string real = real_path(path_);
    const std::string_view above = facts.root == "/" ? std::string_view() : std::string_view(facts.root);
    if (facts.exe == real || facts.exe == path_) return true;
    return facts.exe.starts_with(above) && facts.exe.substr(above.size()) == path_;
}

bool Executable::matches_name(const ProgramFacts& facts) const {
    if (base_name(facts.exe) == text_) return true;
    if (facts.script && base_name(*facts.script) == text_) return true;
    if (is_multi_call(facts.exe)) return is_called(facts, text_);
    if (text_.size() <= max_comm_size && facts.comm == text_) return true;
    if (is_our_file(facts.exe_id)) return true;
    return text_.size() > max_comm_size && facts.comm == text_.substr(0, max_comm_size) && !facts.arguments.empty() &&
           base_name(facts.arguments[0]) == text_;
}

bool Executable::matches_facts(pid_t pid, ProgramFacts& facts) const {
    const auto is_named = [this](const std::string& argument) { return base_name(argument) == text_; };
    if (is_path_ || std::any_of(facts.arguments.begin(), facts.arguments.end(), is_named))
        find_script(pid, proc_, facts);
    return is_path_ ? matches_path(pid, facts) : matches_name(facts);
}

bool Executable::matches(pid_t pid) const {
    auto facts = read_program_facts(pid, proc_);
    return facts && matches_facts(pid, *facts);
}

bool Executable::matches(const ExecutedFile& executed) const {
    if (auto facts = read_program_facts(executed.pid, proc_)) return matches_facts(executed.pid, *facts);
    if (!is_path_) return base_name(executed.path) == text_;
    return executed.path == path_ || executed.path == text_ || real_path(executed.path) == real_path(path_);
}

std::vector<pid_t> Executable::find() const {
    std::vector<pid_t> pids = list_processes(proc_);
    std::erase_if(pids, [this](pid_t pid) { return !matches(pid); });
    return pids;
}

std::vector<pid_t> list_processes(const std::string& proc) {
    std::vector<pid_t> pids;
    std::error_code ended;
    for (std::filesystem::directory_iterator entry(proc, ended), end; !ended && entry != end; entry.increment(ended)) {
        const std::string name = entry->path().filename().string();
        pid_t pid = 0;
        const auto parsed = std::from_chars(name.data(), name.data() + name.size(), pid);
        if (parsed.ec == std::errc() && parsed.ptr == name.data() + name.size() && pid > 0) pids.push_back(pid);
    }
    std::sort(pids.begin(), pids.end());
    return pids;
}

}  // namespace memtrace
