// From a target's mappings to its probes and unwind tables. Uses kernel, probes, unwind and processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "kernel/session.hpp"
#include "processes/mapping_events.hpp"
#include "tracing/child_armer.hpp"
#include "tracing/file_links.hpp"
#include "tracing/overhead.hpp"
#include "tracing/probe_cache.hpp"
#include "tracing/target.hpp"
#include "tracing/unwind_table_loader.hpp"

namespace memtrace {

/// For one thread.
class TargetProbes {
  public:
    /// Both must outlive the object. `are_for_all`: probes are everybody's from the start.
    TargetProbes(Session& session, const AllocatorTable& table, bool are_for_all)
        : session_(session),
          table_(table),
          are_for_all_(are_for_all),
          cache_(table),
          links_(session, are_for_all),
          child_armer_(session, links_),
          unwind_tables_(session) {}

    Result<void> load_vdso() { return unwind_tables_.load_vdso(); }
    /// Attaches to what a running process maps. Error no_allocator: nothing that it maps has an allocator.
    Result<void> attach_process(Target& target);
    /// Attaches to `files`, which a child that will exec will load.
    Result<void> attach_files(Target& target, const std::vector<std::string>& files);
    /// Processes that are found later will probably load `files`: their probe points are looked for now, and where
    /// probes are everybody's they are attached.
    Result<void> prepare(const std::vector<std::string>& files);
    /// Attaches to the files of prepare(), before the process maps them.
    void attach_likely(Target& target);
    /// Children of targets get their probes at once from now on, beside the main loop.
    Result<void> start_arming_children() { return child_armer_.start(); }
    /// `child` was forked by `parent`, as `event` tells, and has what it has. Since when (CLOCK_MONOTONIC).
    uint64_t attach_child(const Target& parent, Target& child, const mt_process_event& event);
    /// The mapping is new; its time 0 means that it is older than its finding.
    void attach_mapping(Target& target, const Mapping& mapping, uint64_t time_ns);
    /// A process that is no target has a mapping that everybody's probes may belong on.
    void attach_mapping_for_all(pid_t pid, const Mapping& mapping);
    /// ... all that it has now.
    void attach_process_for_all(pid_t pid);
    /// The process has another image: what is known of the mappings of the old one is not true any more.
    void forget_image(Target& target);
    /// The process needs no probes any more; nothing of it may be armed.
    void release(pid_t pid);

    /// System calls of all targets that change mappings are seen from now on, and a process without an allocator is
    /// traced for their sake; what that costs is told once. Errors: not_privileged, kernel_lacks_feature.
    Result<void> see_system_calls();

    /// No process has probes any more, nor gets any; nothing may be armed.
    void detach() { links_.detach(); }
    /// What malloc and free of the targets carry; where several allocators are mapped, of the one that took libc's
    /// place.
    HitKinds hit_kinds() const;

    /// See UnwindTableLoader::answer.
    void answer(const mt_file_event& event);
    /// Functions that the user named and no file of the target defines are named in a warning.
    void warn_of_functions_not_found(const Target& target) const;

  private:
    struct LikelyFile {
        FileIdentity identity;
        Fd fd;
        std::string name;
    };
    static std::optional<FileIdentity> identity_of_own_program();
    bool is_likely(const FileIdentity& identity) const;
    Result<void> attach_file(Target& target, const FileIdentity& identity, int fd, const std::string& name);
    Result<void> try_mapping(Target& target, const Mapping& mapping);
    Result<void> attach_system_calls();
    void try_to_see_system_calls();
    void note_mapping_functions(Target& target, const ProbedFile& file);
    void note_window(Target& target, const Mapping& mapping, uint64_t time_ns);

    Session& session_;
    const AllocatorTable& table_;
    bool are_for_all_;
    ProbeCache cache_;
    FileLinks links_;
    ChildArmer child_armer_;
    UnwindTableLoader unwind_tables_;
    std::vector<LikelyFile> likely_;
    bool traces_mappings_alone_ = false;
    bool sees_system_calls_ = false;
    bool cannot_see_system_calls_ = false;
    std::optional<FileIdentity> own_program_ = identity_of_own_program();
};

/// comm[pid]
std::string process_name(const ProcessInfo& process);

}  // namespace memtrace
