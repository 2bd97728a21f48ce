// One tracing session in the kernel: load, attach, arm, read, disarm, detach. This folder is the only one that knows
// libbpf. Law of the order: links stand before anything is armed and everything is disarmed before a link goes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "heap/snapshot.hpp"
#include "kernel/events.hpp"
#include "kernel/fork_notices.hpp"
#include "kernel/links.hpp"
#include "memtrace/abi.h"
#include "memtrace/runtimes_abi.h"
#include "probes/resolve.hpp"
#include "unwind/elf_image.hpp"
#include "unwind/unwind_table.hpp"

struct memtrace_bpf;
struct ring_buffer;

namespace memtrace {

class SystemCallProbes;
class UnwindTables;

/// A control group by its directory and its id.
struct CgroupHandle {
    int fd = -1;  // -1: it does not exist yet, see Session::watch_cgroup
    uint64_t id = 0;
};

struct SessionOptions {
    const AllocatorTable* table = nullptr;  // must outlive the session
    std::optional<AttachRung> rung;         // none: the first that the kernel has
    uint32_t max_live_blocks = 1u << 20;
    uint32_t max_sites = 1u << 17;
    uint32_t ring_size_bytes = 8u << 20;  // a power of two, whole pages
    uint32_t max_stack_frames = MT_MAX_FRAMES;
    uint64_t min_size_bytes = 0;
    uint64_t max_size_bytes = UINT64_MAX;
    bool traces_blocks = false;
    bool folds_stacks = false;                        // of max_stack_frames frames a stack is as long as it is wanted
    uint32_t max_address_spaces = MT_MAX_OWNERS - 1;  // at once, and at most so many
    uint64_t max_process_blocks = UINT64_MAX;         // of one address space, so that it leaves room for others
    uint32_t max_process_sites = UINT32_MAX;
    std::vector<std::string> program_names = {};  // whose processes become targets at their exec: last parts of paths
    std::vector<CgroupHandle> cgroups = {};       // whose processes do; MT_MAX_CGROUPS at most
    bool follows_children = false;                // of the targets that the kernel side makes
    bool traces_all = false;                      // whoever allocates becomes a target, but for this process
    bool sees_system_calls = false;               // from the start, also where libc's functions are probed
    bool samples = false;                         // blocks are sampled, or may come to be (set_sampling_mean)
    uint32_t sampling_mean_bytes = 0;             // 0 and 1: every block is recorded
};

/// Since the programs were loaded, while the kernel counted.
struct ProgramRuns {
    uint64_t plain_hits = 0;        // entries of functions that are not waited for, and of all on the other rungs
    uint64_t session_hits = 0;      // entries and returns on the session rung
    uint64_t return_hits = 0;       // returns on the other rungs
    uint64_t instruction_hits = 0;  // return instructions
    uint64_t run_time_ns = 0;       // of the programs, without the traps

    uint64_t hits() const { return plain_hits + session_hits + return_hits + instruction_hits; }
};

/// One table of the kernel side.
struct TableSize {
    std::string name;
    uint32_t entries = 0;
    uint64_t memory_bytes = 0;  // now; tables that grow have more when they are full
};

struct TableSizes {
    std::vector<TableSize> tables;
    uint32_t max_live_blocks = 0;   // the option, rounded up to what the table takes
    double bytes_a_live_block = 0;  // when as many blocks are live as the table is made for
    uint64_t bytes_a_thread = 0;    // of each thread of a target, besides
};

/// Owns the loaded programs, the maps and the ring buffer. Not thread-safe.
class Session {
  public:
    /// Loads the programs for the best rung, or for the one that was asked for. Errors: not_privileged,
    /// kernel_lacks_feature.
    static Result<std::unique_ptr<Session>> open(const SessionOptions& options);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    AttachRung rung() const { return rung_; }

    /// Attaches the probes of one file for the process `pid`; what only gives back is attached first. The probes go
    /// with the returned object. On the perf rung they are hit by every process and filtered in the kernel.
    /// Thread-safe.
    Result<FileProbes> attach(int file_fd, std::span<const ProbePoint> points, pid_t pid);

    /// Attaches the probes of one file for everybody; only targets' hits are recorded. Where targets have links of
    /// their own on the file, those must be older: they count until let_link_for_all_count(`file_number`, true), and
    /// from then on this link does, so that they can go. `file_number` is the caller's name for the file, below
    /// MT_MAX_PROBED_FILES.
    Result<FileProbes> attach_for_all(int file_fd, std::span<const ProbePoint> points, uint32_t file_number);
    void let_link_for_all_count(uint32_t file_number, bool counts);
    /// Processes that come into the control group are targets from now on; `index` is its place in
    /// SessionOptions::cgroups.
    Result<void> watch_cgroup(uint32_t index, const CgroupHandle& cgroup);
    /// Every file that a target uses has a link for everybody: children of followed targets are recorded from their
    /// fork on.
    void arm_children_at_fork(bool is_wanted);

    /// Makes the address spaces of `pid` targets, unless they are already, as `state` says; they are seen from the
    /// first allocator call on. What a followed one forks is a target too (MT_EVENT_FORK), recorded from arm_owner on.
    Result<void> add_target(pid_t pid, mt_target_state state, bool is_followed = false);
    /// The probes of a target that was added as MT_TARGET_NOT_ARMED stand. False when it has ended meanwhile.
    bool arm_target(pid_t pid, bool is_followed);
    /// The probes of an address space that fork has made stand: its allocations are recorded from now on. Thread-safe.
    void arm_owner(uint32_t owner);
    /// The process is no target any more, nor is its present address space, whose number is returned (0: none was seen)
    /// and is to be released as that of one that has ended.
    uint32_t remove_target(pid_t pid);

    /// The present address space of `pid`, or that of its next first allocator call, has a collected heap.
    void set_collector(pid_t pid, const mt_collector& collector);
    /// Takes out of the live table what a collector has given back, and counts it as freed; a block whose address has
    /// been handed out again meanwhile stays.
    void release_collected(std::span<const Block> blocks);

    /// From now on system calls of targets that change mappings are seen where no probed function makes them. What
    /// that adds to each system call of any task in nanoseconds, measured on this process. Errors: not_privileged,
    /// kernel_lacks_feature.
    Result<uint64_t> see_system_calls();

    /// Code of `file` is walked by `table` from now on; see UnwindTables::add.
    Result<void> add_unwind_table(const mt_file& file, const UnwindTable& table, std::span<const CodeSegment> segments);
    /// Code of `file` is walked by frame pointer.
    Result<void> add_file_without_cfi(const mt_file& file);
    /// Nobody maps the file any more.
    void remove_unwind_table(const mt_file& file);
    /// Code was mapped over other code of the process: what is cached of it is forgotten.
    void forget_code(uint32_t owner);

    /// From now on a byte of mt_rounded_mean(mean_bytes) is sampled (0 and 1: all), MT_MAX_SAMPLING_MEAN_BYTES at most.
    /// What each block stands for is known by the mean in force when it was allocated. Only of a session that samples.
    void set_sampling_mean(uint32_t mean_bytes);
    uint32_t sampling_mean() const;

    /// Recording starts, for all targets at once. All links must stand.
    void arm();
    /// Recording stops; when this returns no program is still recording.
    void disarm();

    /// The kernel counts runs of programs as long as the returned object lives, at the price of some 20 ns a run of any
    /// program of the system. Errors: not_privileged, kernel_lacks_feature.
    Result<Fd> count_program_runs() const;
    ProgramRuns program_runs() const;
    TableSizes table_sizes() const;

    /// Children that wait for arm_owner(), as soon as they are forked; the session must outlive the result.
    Result<std::unique_ptr<ForkNotices>> open_fork_notices(ForkNotices::Handler handler) const;

    /// Readable when events wait, but for some of those that come before look_again_ns().
    int event_fd() const;
    /// CLOCK_MONOTONIC; until then some events come unannounced (MT_WAKEUP_INTERVAL_NS): whoever waits, drains then.
    uint64_t look_again_ns() const { return last_event_ns_ + 2 * MT_WAKEUP_INTERVAL_NS; }
    /// Hands the events that waited at the call to `sink`, in the order of the ring, and perhaps the next one.
    void drain_events(EventSink& sink);

    /// What the kernel side knows now, with as much of the live blocks as `detail` says, or more.
    Snapshot read_snapshot(BlockDetail detail = BlockDetail::whole) const;
    /// Of `owners`, those that have ended and are of no use to anybody: no child is left that could hold their blocks.
    std::vector<uint32_t> releasable(std::span<const uint32_t> owners) const;
    /// No program is at work any more that saw the targets as they were before the call. Takes milliseconds.
    void wait_for_programs() const;
    /// Removes `owners`, which are releasable, from all tables: their numbers are given to others. Before, wait for the
    /// programs and drain the events, so that no late one is taken for theirs. Returns their last numbers (address
    /// spaces and sites). One pass over the tables for all of them, some 20 ms for a million blocks.
    Snapshot release(std::span<const uint32_t> owners);
    /// Address spaces or threads that could not be followed, by the whole session.
    uint64_t owners_not_recorded() const;

  private:
    struct Deleter {
        void operator()(memtrace_bpf* skeleton) const;
        void operator()(ring_buffer* ring) const;
    };
    struct Tables;
    /// One call of drain_events.
    struct Draining {
        EventSink* sink = nullptr;
        uint64_t began_ns = 0;
    };

    Session();
    Result<void> watch(const SessionOptions& options);
    static Result<std::unique_ptr<Session>> open_rung(const SessionOptions& options, AttachRung rung);
    RungPrograms rung_programs() const;
    Result<void> map_tables();
    Result<void> open_ring();
    void append_sites(Snapshot& snapshot) const;
    void append_address_spaces(Snapshot& snapshot) const;
    void append_blocks(Snapshot& snapshot, BlockDetail detail) const;
    uint64_t expected_blocks(const Snapshot& snapshot) const;
    void append_inherited_frees(Snapshot& snapshot) const;
    void append_ghosts(Snapshot& snapshot) const;
    void append_typed_objects(Snapshot& snapshot) const;
    void append_collections(Snapshot& snapshot) const;
    void release_typed_objects(const std::vector<bool>& sites);
    bool release_slot(const Block& block);
    void leave_ghost(const Block& block);
    bool release_overflow_block(const Block& block);
    void release_blocks(const std::vector<bool>& owners);
    void release_sites(const std::vector<bool>& owners);
    void release_inheritance(const std::vector<bool>& owners);
    void release_owner(uint32_t owner);
    void end_owner(uint32_t owner);

    AttachRung rung_ = AttachRung::session;
    const AllocatorTable* table_ = nullptr;
    std::unique_ptr<memtrace_bpf, Deleter> skeleton_;
    std::unique_ptr<ring_buffer, Deleter> ring_;
    std::unique_ptr<Tables> tables_;
    std::unique_ptr<UnwindTables> unwind_tables_;
    std::unique_ptr<SystemCallProbes> system_call_probes_;
    std::set<uint64_t> doubted_ghosts_;  // of many forks, that had no ghost when they were last looked at
    Draining draining_;
    uint64_t last_event_ns_ = 0;  // when some were handed over
};

}  // namespace memtrace
