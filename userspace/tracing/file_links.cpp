#include "tracing/file_links.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "processes/process.hpp"

namespace memtrace {
namespace {

// A call that was entered before the link for everybody stood is reported by the own link when it returns.
constexpr std::chrono::milliseconds longest_call{1000};

}  // namespace

Result<FileLinks::LinkedFile*> FileLinks::open(const FileIdentity& identity, int fd, const ProbedFile& file,
                                               const std::string& name) {
    const auto found = files_.find(identity);
    if (found != files_.end()) return &found->second;
    Fd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!copy) return Error{"cannot attach to " + name, errno_text(errno), "raise the limit of open files (ulimit -n)"};
    LinkedFile& linked = files_[identity];
    linked.fd = std::move(copy);
    linked.file = &file;
    linked.name = name;
    return &linked;
}

Result<void> FileLinks::attach(const FileIdentity& identity, int fd, const ProbedFile& file, const std::string& name,
                               pid_t pid) {
    const std::lock_guard lock(mutex_);
    if (is_detached_) return {};
    auto linked = open(identity, fd, file, name);
    if (!linked) return std::move(linked).error();
    auto attached = attach_to(**linked, pid);
    if (!attached && (*linked)->own.empty() && !(*linked)->for_all) files_.erase(identity);
    tell_whether_children_can_be_armed();
    return attached;
}

Result<void> FileLinks::attach_for_all(const FileIdentity& identity, int fd, const ProbedFile& file,
                                       const std::string& name) {
    const std::lock_guard lock(mutex_);
    if (is_detached_) return {};
    auto linked = open(identity, fd, file, name);
    if (!linked) return std::move(linked).error();
    if ((*linked)->for_all) return {};
    auto changed = change_to_all(**linked);
    if (!changed && (*linked)->own.empty()) files_.erase(identity);
    tell_whether_children_can_be_armed();
    return changed;
}

bool FileLinks::attach_child(pid_t parent, pid_t child) {
    const std::lock_guard lock(mutex_);
    bool is_news = false;
    for (auto& [identity, linked] : files_) {
        const bool is_of_parent = linked.own.contains(parent) || linked.users.contains(parent);
        if (!is_of_parent || linked.own.contains(child) || linked.users.contains(child)) continue;
        is_news |= static_cast<bool>(attach_to(linked, child));
    }
    tell_whether_children_can_be_armed();
    return is_news;
}

Result<void> FileLinks::attach_to(LinkedFile& linked, pid_t pid) {
    if (linked.own.contains(pid)) return {};
    if (const auto reason = linked.for_all ? std::nullopt : reason_for_all(linked, pid)) {
        if (!are_for_all_)
            log_info(
                fmt::format("{}: {}; from now on each call in it costs every process a trap", linked.name, *reason));
        if (auto changed = change_to_all(linked); !changed) return changed;
    }
    if (linked.for_all) {
        linked.users.emplace(pid, linked.for_all_since_ns);
        return {};
    }
    auto probes = session_.attach(linked.fd.get(), linked.file->points, pid);
    if (!probes) return std::move(probes).error();
    linked.own.emplace(pid, OwnProbes{std::move(probes).value(), monotonic_now_ns()});
    ++*linked.open_own;
    return {};
}

/// Why the file has to have a link for everybody when `pid` gets probes on it; none: it needs none.
std::optional<std::string> FileLinks::reason_for_all(const LinkedFile& linked, pid_t pid) const {
    if (are_for_all_) return "probes are for everybody";
    if (*linked.open_own >= most_own_links) return fmt::format("more than {} targets", most_own_links);
    // The kernel looks for the memory of a link's process at its first thread.
    if (has_lost_first_thread(pid)) return fmt::format("the first thread of process {} has ended", pid);
    return std::nullopt;
}

Result<void> FileLinks::change_to_all(LinkedFile& linked) {
    const uint32_t number = next_number();
    auto probes = session_.attach_for_all(linked.fd.get(), linked.file->points, number);
    if (!probes) return std::move(probes).error();
    linked.for_all.emplace(std::move(probes).value());
    linked.number = number;
    numbers_.insert(number);
    session_.let_link_for_all_count(number, true);
    linked.for_all_since_ns = monotonic_now_ns();
    while (!linked.own.empty()) {
        const auto& [pid, own] = *linked.own.begin();
        linked.users.emplace(pid, own.since_ns);
        retire_own(linked, pid, longest_call);
    }
    return {};
}

void FileLinks::retire_own(LinkedFile& linked, pid_t pid, std::chrono::milliseconds delay) {
    const auto own = linked.own.find(pid);
    retirer_.retire(std::move(own->second.probes), linked.open_own, delay);
    linked.own.erase(own);
}

void FileLinks::release(pid_t pid) {
    const std::lock_guard lock(mutex_);
    for (auto file = files_.begin(); file != files_.end();) {
        LinkedFile& linked = file->second;
        if (linked.own.contains(pid)) retire_own(linked, pid, {});
        linked.users.erase(pid);
        const bool is_used = are_for_all_ || !linked.own.empty() || !linked.users.empty();
        if (!is_used && linked.for_all) retire_for_all(linked);
        file = is_used ? std::next(file) : files_.erase(file);
    }
    tell_whether_children_can_be_armed();
}

void FileLinks::retire_for_all(LinkedFile& linked) {
    session_.let_link_for_all_count(linked.number, false);
    numbers_.erase(linked.number);
    ++*linked.open_own;
    retirer_.retire(std::move(*linked.for_all), linked.open_own);
}

void FileLinks::detach() {
    const std::lock_guard lock(mutex_);
    is_detached_ = true;
    for (auto& [identity, linked] : files_) {
        while (!linked.own.empty())
            retire_own(linked, linked.own.begin()->first, {});
        if (linked.for_all) retire_for_all(linked);
    }
    files_.clear();
    tell_whether_children_can_be_armed();
}

std::vector<const ProbedFile*> FileLinks::probed_files() const {
    const std::lock_guard lock(mutex_);
    std::vector<const ProbedFile*> files;
    for (const auto& [identity, linked] : files_)
        files.push_back(linked.file);
    return files;
}

/// A number that was given back long ago first: its link may still be closing.
uint32_t FileLinks::next_number() {
    do
        last_number_ = (last_number_ + 1) & (MT_MAX_PROBED_FILES - 1);
    while (numbers_.contains(last_number_) && numbers_.size() < MT_MAX_PROBED_FILES);
    return last_number_;
}

void FileLinks::tell_whether_children_can_be_armed() {
    const bool has_own = std::ranges::any_of(files_, [](const auto& file) { return !file.second.for_all; });
    session_.arm_children_at_fork(!files_.empty() && !has_own);
}

bool FileLinks::is_known(const FileIdentity& identity) const {
    const std::lock_guard lock(mutex_);
    return files_.contains(identity);
}

bool FileLinks::is_attached(const FileIdentity& identity, pid_t pid) const {
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(identity);
    return found != files_.end() && (found->second.own.contains(pid) || found->second.users.contains(pid));
}

std::optional<uint64_t> FileLinks::standing_since_ns(const FileIdentity& identity, pid_t pid) const {
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(identity);
    if (found == files_.end()) return std::nullopt;
    if (const auto own = found->second.own.find(pid); own != found->second.own.end()) return own->second.since_ns;
    if (const auto user = found->second.users.find(pid); user != found->second.users.end()) return user->second;
    return std::nullopt;
}

std::set<FileIdentity> FileLinks::files_of(pid_t pid) const {
    const std::lock_guard lock(mutex_);
    std::set<FileIdentity> files;
    for (const auto& [identity, linked] : files_)
        if (linked.own.contains(pid) || linked.users.contains(pid)) files.insert(identity);
    return files;
}

size_t FileLinks::files_for_all() const {
    const std::lock_guard lock(mutex_);
    return static_cast<size_t>(
        std::ranges::count_if(files_, [](const auto& f) { return f.second.for_all.has_value(); }));
}

}  // namespace memtrace
