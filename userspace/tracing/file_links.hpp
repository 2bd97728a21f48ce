// Which links stand on which file: a target's own, which cost nobody else anything, or, where many targets use the
// file, one for everybody. Uses kernel, probes and processes.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/inheriting_mutex.hpp"
#include "base/result.hpp"
#include "kernel/session.hpp"
#include "tracing/file_identity.hpp"
#include "tracing/link_retirer.hpp"
#include "tracing/probe_cache.hpp"

namespace memtrace {

/// More targets than this on one file have one link for everybody: each link costs each hit of every target 27 ns.
constexpr size_t most_own_links = 16;

/// Thread-safe: children get their links beside the main loop (child_armer).
class FileLinks {
  public:
    /// `session` must outlive the object. `are_for_all`: every file gets a link for everybody from the start.
    FileLinks(Session& session, bool are_for_all)
        : session_(session), are_for_all_(are_for_all || session.rung() == AttachRung::perf) {}
    FileLinks(const FileLinks&) = delete;
    FileLinks& operator=(const FileLinks&) = delete;
    /// Returns when no link stands any more; all of them go at once.
    ~FileLinks() { detach(); }

    /// The probes of `file`, which is open at `fd`, stand for the process `pid` when this returns. `name` stands for
    /// the file in messages. `file` must stay as long as the file is known here.
    Result<void> attach(const FileIdentity& identity, int fd, const ProbedFile& file, const std::string& name,
                        pid_t pid);
    /// ... and for everybody.
    Result<void> attach_for_all(const FileIdentity& identity, int fd, const ProbedFile& file, const std::string& name);
    /// What `parent` has, `child` gets: its files are the same. Links that could not be made are not there. Whether it
    /// got something that it had not.
    bool attach_child(pid_t parent, pid_t child);
    /// The process needs no probes any more; nothing of it may be armed.
    void release(pid_t pid);

    /// No process has probes any more, nor gets any; nothing may be armed.
    void detach();

    /// What the files that have probes offer.
    std::vector<const ProbedFile*> probed_files() const;
    bool is_attached(const FileIdentity& identity, pid_t pid) const;
    /// Since when the probes of the file stand for the process (CLOCK_MONOTONIC); none if they do not.
    std::optional<uint64_t> standing_since_ns(const FileIdentity& identity, pid_t pid) const;
    /// Some process has probes on it.
    bool is_known(const FileIdentity& identity) const;
    /// The files that have probes for the process.
    std::set<FileIdentity> files_of(pid_t pid) const;
    /// Files that have a link for everybody.
    size_t files_for_all() const;

  private:
    struct OwnProbes {
        FileProbes probes;
        uint64_t since_ns = 0;
    };
    struct LinkedFile {
        Fd fd;
        const ProbedFile* file = nullptr;
        std::string name;
        std::map<pid_t, OwnProbes> own;
        std::shared_ptr<std::atomic<size_t>> open_own = std::make_shared<std::atomic<size_t>>(0);  // closing ones too
        std::map<pid_t, uint64_t> users;  // of the link for everybody; since when they have probes
        std::optional<FileProbes> for_all;
        uint64_t for_all_since_ns = 0;
        uint32_t number = 0;  // of the link for everybody
    };

    Result<LinkedFile*> open(const FileIdentity& identity, int fd, const ProbedFile& file, const std::string& name);
    Result<void> attach_to(LinkedFile& linked, pid_t pid);
    std::optional<std::string> reason_for_all(const LinkedFile& linked, pid_t pid) const;
    Result<void> change_to_all(LinkedFile& linked);
    void retire_own(LinkedFile& linked, pid_t pid, std::chrono::milliseconds delay);
    void retire_for_all(LinkedFile& linked);
    uint32_t next_number();
    void tell_whether_children_can_be_armed();

    Session& session_;
    const bool are_for_all_;
    mutable InheritingMutex mutex_;  // of what follows
    bool is_detached_ = false;
    std::map<FileIdentity, LinkedFile> files_;
    std::set<uint32_t> numbers_;  // of links for everybody that stand
    uint32_t last_number_ = 0;
    LinkRetirer retirer_;
};

}  // namespace memtrace
