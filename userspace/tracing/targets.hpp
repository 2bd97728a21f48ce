// The processes that are traced, from when they are found to their last report: what fork, exec, exit and mappings do
// to them. Uses kernel, processes, symbols and reports' records.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "kernel/session.hpp"
#include "processes/mapping_events.hpp"
#include "reports/document.hpp"
#include "symbols/stack_store.hpp"
#include "tracing/scope.hpp"
#include "tracing/target.hpp"
#include "tracing/target_probes.hpp"
#include "tracing/unclaimed_mappings.hpp"

namespace memtrace {

/// What a tracer tells while it drains events.
class TracerListener {
  public:
    virtual ~TracerListener() = default;
    virtual void on_record(const Record& record) = 0;
    /// The process has ended; its figures are as they were then.
    virtual void on_exit(pid_t pid) = 0;
};

/// For one thread.
class Targets {
  public:
    /// All must outlive the object.
    Targets(Session& session, StackStore& stack_store, const AllocatorTable& table, const TargetScope& scope)
        : session_(session), stack_store_(stack_store), scope_(scope), probes_(session, table, scope.is_for_all()) {}

    TargetProbes& probes() { return probes_; }
    const TargetProbes& probes() const { return probes_; }
    const std::map<pid_t, Target>& all() const { return targets_; }
    Target* find(pid_t pid);

    /// Attaches to a running process. Errors: no_such_target, no_allocator, not_privileged.
    Result<void> add_process(pid_t pid);
    /// Attaches to a child that will exec: the probes go on `files`, which the command will load.
    Result<void> add_command(pid_t pid, const std::vector<std::string>& files);
    /// Attaches to every process that the scope names, and to the descendants of all targets where they are followed.
    /// Those that cannot be traced are told to `listener`.
    void add_running(TracerListener& listener);
    /// Whether the address is code of the process's dynamic linker. Reads /proc once an image.
    bool is_in_dynamic_linker(pid_t pid, uint64_t address);

    /// An executable mapping of any process; those of targets are attached to.
    void on_mapping(const MappingEvent& event);
    /// Takes in the life of a target; `listener` hears of it.
    void on_process(const mt_process_event& event, TracerListener& listener);
    /// Mapping events were lost: what they would have told is read from /proc.
    void read_mappings_again();
    /// A process id may have been used again before the one that had it has had its last report: what the kernel side
    /// knows of the later process is left out until then.
    void leave_out_later_processes(Snapshot& snapshot) const;
    /// The process has had its last report.
    void forget(pid_t pid, TracerListener* listener);
    /// Address spaces of processes that are no targets any more; they are to be released.
    std::vector<uint32_t> take_removed_owners() { return std::exchange(removed_owners_, {}); }
    bool has_removed_owners() const { return !removed_owners_.empty(); }
    /// Recording has begun: who is there was not traced before.
    void note_recording_begins();

    /// The record of `event` in the life of a target.
    static ProcessRecord record_of(const Target& target, std::string event);

    /// Tells that the process is not traced, and why.
    static void skip(pid_t pid, const std::string& comm, const Error& error, TracerListener& listener);

  private:
    void on_owner(Target& target, const mt_process_event& event, TracerListener& listener);
    void note_birth(Target& target, uint64_t began_ns, uint64_t armed_ns) const;
    void on_fork(const mt_process_event& event, TracerListener& listener);
    void on_born(const mt_process_event& event, TracerListener& listener);
    void on_exec(Target& target, const mt_process_event& event, TracerListener& listener);
    void on_exit(Target& target, const mt_process_event& event, TracerListener& listener);
    void remove(pid_t pid);
    void adopt(const mt_process_event& event, TracerListener& listener);
    void try_to_add(pid_t pid, TracerListener& listener);
    bool add_descendants(TracerListener& listener);
    void claim_mappings(Target& target);
    void attach_present_mappings(Target& target);

    Session& session_;
    StackStore& stack_store_;
    const TargetScope& scope_;
    TargetProbes probes_;
    std::map<pid_t, Target> targets_;
    UnclaimedMappings unclaimed_;
    std::deque<mt_process_event> deferred_;  // of processes whose id is still that of one that has ended
    std::vector<uint32_t> removed_owners_;
    uint64_t recording_since_ns_ = UINT64_MAX;
};

}  // namespace memtrace
