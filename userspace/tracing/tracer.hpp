// From targets to figures: attaches to processes and to what they load later, feeds the stores from the kernel's
// events, and keeps what is needed to name everything after a process has ended. Uses everything up to reports/, but
// for cli/.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "heap/mappings.hpp"
#include "heap/scope_draft.hpp"
#include "heap/snapshot.hpp"
#include "kernel/session.hpp"
#include "processes/mapping_events.hpp"
#include "reports/document.hpp"
#include "reports/leak_report.hpp"
#include "symbols/stack_store.hpp"
#include "tracing/collected_heaps.hpp"
#include "tracing/go_heaps.hpp"
#include "tracing/overhead.hpp"
#include "tracing/raw_stacks.hpp"
#include "tracing/scope.hpp"
#include "tracing/targets.hpp"

namespace memtrace {

/// Owns the session and the stores. For one thread.
class Tracer : private EventSink, public SiteNames {
  public:
    /// options.table must outlive the tracer. `type_names`: of a collected heap's objects, from a dump.
    static Result<std::unique_ptr<Tracer>> open(const SessionOptions& options, const ScopeOptions& scope = {},
                                                TypeNames type_names = {});

    /// Attaches to a running process. Errors: no_such_target, no_allocator, not_privileged.
    Result<void> add_process(pid_t pid);
    /// Attaches to a child that will exec: the probes go on `files`, which the command will load.
    Result<void> add_command(pid_t pid, const std::vector<std::string>& files) {
        return targets_.add_command(pid, files);
    }
    /// Attaches to every process that the scope names now; `listener` hears of those that cannot be traced.
    Result<void> add_scope(TracerListener& listener);
    /// Whether processes may become targets that are no descendants of one.
    bool may_find_targets() const { return scope_.finds_targets(); }
    /// Control groups and containers that do not exist yet, for people.
    std::vector<std::string> missing() const { return scope_.missing(); }
    /// Recording starts.
    void arm();
    /// Stops recording; figures and names stay.
    void disarm() { session_->disarm(); }

    /// See Session::set_sampling_mean.
    void set_sampling_mean(uint32_t mean_bytes) { session_->set_sampling_mean(mean_bytes); }
    uint32_t sampling_mean() const { return session_->sampling_mean(); }

    /// See Session::count_program_runs.
    Result<Fd> count_program_runs() const { return session_->count_program_runs(); }
    ProgramRuns program_runs() const { return session_->program_runs(); }
    /// What malloc and free of the targets carry; where several allocators are mapped, of the one that took libc's
    /// place.
    HitKinds hit_kinds() const { return targets_.probes().hit_kinds(); }
    /// Stops recording and takes all probes away for good; what was recorded stays readable.
    void detach();

    const AllocatorTable& table() const { return table_; }
    AttachRung rung() const { return session_->rung(); }
    int event_fd() const { return session_->event_fd(); }
    /// See Session::look_again_ns.
    uint64_t look_again_ns() const { return session_->look_again_ns(); }
    int mapping_fd() const { return mapping_events_.poll_fd(); }
    /// Takes in whatever the kernel has told; `listener` hears of it, and must outlive the tracer: it also hears of
    /// what comes while the sites of a report are named.
    void drain(TracerListener& listener);

    /// See Session::read_snapshot; whole blocks where a target has a collected heap. What a collector has given back is
    /// taken out first.
    Snapshot read_snapshot(BlockDetail detail);
    const MappingLedger& mapping_ledger() const { return mapping_ledger_; }
    const std::map<pid_t, Target>& targets() const { return targets_.all(); }
    /// Mapping events that were lost on the way, address spaces that could not be followed.
    uint64_t side_band_lost() const { return side_band_lost_; }
    uint64_t owners_not_recorded() const { return session_->owners_not_recorded(); }
    /// The record that says that `pid` is traced.
    ProcessRecord attach_record(pid_t pid) const;
    /// Resident memory now, or the last that was read before the process ended.
    std::optional<uint64_t> rss_bytes(pid_t pid);
    /// The process has had its last report: its room in the tables is free after a release_ended().
    void forget(pid_t pid);
    /// Of these address spaces, which exec has ended, nothing is asked for any more.
    void forget_owners(const std::vector<uint32_t>& owners);
    /// Is there something to release, and has some time passed? A pass over the tables takes some 30 ms.
    bool wants_release() const;
    /// May an address space that exec has ended be forgotten now?
    bool has_news_of_exec() const { return has_news_of_exec_; }
    /// What was forgotten, and what no child holds any more of it, leaves the tables of both sides; its numbers are
    /// given to others. Not while sites are named.
    void release_ended();
    /// Of a collected heap's objects in `pid`.
    std::string type_name(pid_t pid, uint32_t type) const;
    /// Of a Go program's sampled heap; none of others.
    std::optional<BeforeAttachRecord> live_from_before(pid_t pid) const { return go_heaps_.live_from_before(pid); }

    const std::vector<Frame>& frames(uint32_t site) override;
    std::optional<std::string> site_id(uint32_t site, std::string_view kind, std::string_view function) override;
    std::optional<std::string> stack_error(uint32_t site) override;
    /// The stack of `site` is asked for after forget(), under the number that is returned.
    KeptSite keep_stack(uint32_t site);

  private:
    Tracer(const SessionOptions& options, TargetScope scope, std::unique_ptr<Session> session,
           MappingEvents mapping_events, TypeNames type_names)
        : table_(*options.table),
          scope_(std::move(scope)),
          session_(std::move(session)),
          mapping_events_(std::move(mapping_events)),
          collected_heaps_(*session_, table_, std::move(type_names)),
          go_heaps_(table_),
          raw_stacks_(stack_store_, options.max_stack_frames, options.folds_stacks),
          targets_(*session_, stack_store_, table_, scope_) {}

    void on_site(const mt_event& event, uint32_t site, std::span<const uint64_t> return_addresses) override;
    void on_raw_stack(const mt_raw_stack_event& event) override;
    void on_mapping(const mt_mapping_event& event) override;
    void on_block(const mt_block_event& event) override;
    void on_process(const mt_process_event& event) override;
    void on_cgroup(const mt_event& event, std::string_view path) override;
    void on_file(const mt_file_event& event) override { targets_.probes().answer(event); }

    void read_mapping_events(uint64_t at_least_until_ns);
    void resync_mappings(const Snapshot& snapshot);
    const AllocatorMapping* find_allocator(pid_t pid, uint64_t address) const;
    void drain_while_naming();
    void watch_cgroups(const std::vector<uint32_t>& made);

    const AllocatorTable& table_;
    TargetScope scope_;
    std::unique_ptr<Session> session_;
    MappingEvents mapping_events_;
    CollectedHeaps collected_heaps_;
    GoHeaps go_heaps_;
    StackStore stack_store_;
    RawStacks raw_stacks_;
    std::unordered_map<uint32_t, std::string> raw_stack_errors_;  // by site
    MappingLedger mapping_ledger_;
    std::unordered_map<uint32_t, uint64_t> resynced_;  // by owner: mapping events lost until its ledger was put right
    Targets targets_;
    std::vector<uint32_t> forgotten_owners_;  // that are not released yet
    std::set<uint32_t> ended_by_exec_;        // of which something may be asked for
    bool has_news_of_exec_ = false;           // since the last release_ended()
    uint64_t released_ns_ = 0;
    std::unordered_map<uint32_t, std::optional<std::string>> traced_site_ids_;
    uint64_t mappings_read_ns_ = 0;
    uint64_t side_band_lost_ = 0;
    uint64_t drained_ns_ = 0;
    TracerListener* listener_ = nullptr;
};

}  // namespace memtrace
