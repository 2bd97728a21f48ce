#include "symbols/jit_symbols.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/text.hpp"
#include "processes/proc_file.hpp"
#include "symbols/demangle.hpp"
#include "symbols/file_root.hpp"

namespace memtrace {
namespace {

// One process may map as many files of that name as it likes.
constexpr size_t most_jit_dumps = 16;

/// The numbers of the line that starts with `key` in /proc/PID/status (proc(5)).
std::vector<uint64_t> numbers_of(std::string_view status, std::string_view key) {
    std::vector<uint64_t> numbers;
    const size_t at = status.find(key);
    if (at == std::string_view::npos) return numbers;
    std::string_view line = status.substr(at + key.size());
    line = line.substr(0, line.find('\n'));
    while (!line.empty()) {
        uint64_t number = 0;
        const auto parsed = std::from_chars(line.data(), line.data() + line.size(), number);
        if (parsed.ec == std::errc()) numbers.push_back(number);
        line.remove_prefix(std::max<size_t>(static_cast<size_t>(parsed.ptr - line.data()), 1));
    }
    return numbers;
}

}  // namespace

bool JitSymbols::is_jit_dump(const std::string& path) {
    const std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
    return name.starts_with("jit-") && name.ends_with(".dump");
}

void JitSymbols::open_perf_map(pid_t pid) {
    if (perf_map_) return;
    const auto status_text = read_whole_file(proc_path(pid, "status"));
    const auto* status = std::get_if<std::string>(&status_text);
    if (!status) return;
    const auto pids = numbers_of(*status, "\nNSpid:");
    const auto users = numbers_of(*status, "\nUid:");
    const uint64_t own_pid = pids.empty() ? static_cast<uint64_t>(pid) : pids.back();
    Fd file = FileRoot::of_process(pid).open_regular(fmt::format("/tmp/perf-{}.map", own_pid));
    struct stat about {};
    if (!file || ::fstat(file.get(), &about) != 0) return;
    const bool is_of_user = std::find(users.begin(), users.end(), about.st_uid) != users.end();
    if (about.st_uid == 0 || is_of_user) perf_map_.emplace(std::move(file));
}

void JitSymbols::add_jit_dump(int fd) {
    struct stat about {};
    if (jit_dumps_.size() >= most_jit_dumps || ::fstat(fd, &about) != 0) return;
    const std::pair<uint64_t, uint64_t> key(about.st_dev, about.st_ino);
    if (std::find(jit_dump_files_.begin(), jit_dump_files_.end(), key) != jit_dump_files_.end()) return;
    jit_dump_files_.push_back(key);
    jit_dumps_.emplace_back(Fd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)));
}

/// False when there was nothing new.
bool JitSymbols::read_on() {
    bool has_grown = false;
    if (perf_map_ && perf_map_->has_more()) {
        has_grown = true;
        read_perf_map(*perf_map_, names_);
    }
    for (GrowingFile& dump : jit_dumps_) {
        if (!dump.has_more()) continue;
        has_grown = true;
        read_jit_dump(dump, names_);
    }
    return has_grown;
}

std::optional<JitSymbols::Function> JitSymbols::find(uint64_t address) {
    JitNames::Found found = names_.find(address);
    if (found.name.empty() && read_on()) found = names_.find(address);
    if (found.name.empty()) return std::nullopt;
    const bool is_linkage_name = found.name.starts_with("_Z") || found.name.starts_with("_R");
    return Function{is_linkage_name ? demangle(std::string(found.name)) : printable(found.name), found.start};
}

}  // namespace memtrace
