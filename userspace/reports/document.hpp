// The document that a report is before it is written: one plain structure a record of the contract, in the contract's
// words. Formats write it, nothing else reads it. Optional values are what is not knowable (null in JSON).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "heap/accuracy.hpp"
#include "heap/figures.hpp"
#include "heap/ranking.hpp"
#include "symbols/frame.hpp"

namespace memtrace {

/// What a session is; the first record.
struct StartRecord {
    int64_t time_unix_ns = 0;  // CLOCK_REALTIME
    std::string version;
    std::string kernel;
    std::vector<std::string> args;
    std::string attach;    // session, multi or perf
    std::string unwinder;  // cfi or fp
};

/// A change in the life of a process that is or could be a target.
struct ProcessRecord {
    std::string event;  // attach, fork, exec, exit or skip
    pid_t pid = 0;
    std::optional<pid_t> ppid = std::nullopt;
    std::string comm;
    std::optional<std::string> exe = std::nullopt;
    std::vector<std::string> runtimes;
    std::optional<bool> since_birth = std::nullopt;  // traced from its first allocation
    std::optional<uint64_t> window_ns =
        std::nullopt;  // from its birth or exec until it was traced: what it did then is not known
    std::optional<std::string> cgroup = std::nullopt;
    std::optional<std::string> container = std::nullopt;
    std::optional<std::string> reason = std::nullopt;  // why it was skipped, or its end status
};

/// Whom a report is about.
struct ReportScope {
    std::string by = "process";
    std::string name;
    std::optional<pid_t> pid;
    std::vector<pid_t> pids;
};

/// How resident memory grew since the attach, and where: each part is measured by itself, only `unexplained_bytes` is
/// the remainder. Any of them may be negative.
struct GrowthFigures {
    bool is_shared_out = false;  // of several processes: of their PSS, else of the one RSS
    int64_t total_bytes = 0;
    int64_t heap_live_bytes = 0;                      // of live blocks, what is resident of them
    std::optional<int64_t> allocator_retained_bytes;  // the allocator's, and in no live block
    int64_t mappings_bytes = 0;                       // the program's own private memory
    int64_t stacks_bytes = 0;
    int64_t files_bytes = 0;
    int64_t shared_bytes = 0;
    int64_t earlier_bytes = 0;             // private memory of before the attach that has not said whose it is
    std::optional<int64_t> gc_heap_bytes;  // of a collected heap
    int64_t unexplained_bytes = 0;
};

/// Resident memory of the scope.
struct MemoryFigures {
    std::optional<uint64_t> rss_bytes;        // of several processes the sum of theirs
    std::optional<uint64_t> pss_bytes;        // of several processes: shared pages divided among those that have them
    std::optional<int64_t> rss_growth_bytes;  // since the attach
    std::optional<uint64_t> mapped_bytes;     // all mappings, touched or not
    std::optional<GrowthFigures> growth;      // none: not read, or not known of all processes
};

/// What tracing costs, of all targets together.
struct OverheadFigures {
    uint64_t hits_per_second = 0;
    double core_share = 0;                 // of one core: 0.05 is 50 ms in a second
    std::optional<double> max_core_share;  // that was asked for
};

/// The probes were taken away: what comes from them is as it was then.
struct StopFigures {
    uint64_t elapsed_ns = 0;  // since the attach
    std::string reason;
};

/// One process of a scope that has several.
struct ProcessEntry {
    std::optional<pid_t> ppid;
    std::string comm;
    std::optional<std::string> exe;
    std::optional<bool> since_birth;  // as in ProcessRecord
    std::optional<uint64_t> window_ns;
    uint64_t started_ns = 0;            // when it was first traced, as ReportRecord::elapsed_ns counts
    std::optional<uint64_t> ended_ns;   // none while it lives
    std::optional<uint64_t> rss_bytes;  // none when it has ended
    ProcessFigures figures;
};

/// What one allocator of the process did since the attach.
struct AllocatorEntry {
    std::string name;
    uint64_t allocations = 0;  // 0: its code is mapped and was not called
    uint64_t allocated_bytes = 0;
};

/// One live block of a call site.
struct BlockEntry {
    uint64_t address = 0;
    uint64_t size_bytes = 0;
    uint64_t age_ns = 0;
};

/// Objects of one type of a collected heap.
struct TypeEntry {
    std::string type;
    std::optional<uint64_t> live_bytes;  // none when the process has ended: then no object can be looked at
    std::optional<uint64_t> live_blocks;
    uint64_t allocated_bytes = 0;  // since the attach
    uint64_t allocations = 0;
};

/// One call site that a report shows, named.
struct SiteEntry {
    std::optional<std::string> id;    // 16 hex digits
    std::string kind;                 // heap, mapping or gc
    std::optional<std::string> type;  // of a collected heap's objects: that of most
    std::string allocator;
    std::string function;
    bool is_inherited = false;  // of a parent's blocks, in none of the sums but HeapFigures::inherited_*
    uint64_t live_bytes = 0;
    uint64_t live_blocks = 0;
    uint64_t allocated_bytes = 0;
    uint64_t allocations = 0;
    MappingParts parts;                      // of a mapping's live bytes
    std::optional<uint64_t> resident_bytes;  // with --resident: of its live blocks
    int64_t growth_bytes = 0;
    int64_t growth_since_baseline_bytes = 0;
    std::optional<Ages> ages;
    std::optional<std::string> stack_error;  // why `frames` is empty or ends early
    std::vector<Frame> frames;
    std::optional<std::vector<BlockEntry>> blocks;  // with --show-allocs
    std::vector<SiteHolder> holders;  // where the scope may have several processes: those that hold most, most first
    uint64_t holders_total = 0;

    std::optional<uint64_t> error_bytes;  // one standard error of live_bytes, where that is an estimate

    uint64_t allocated_since_previous_bytes = 0;  // for people, as in ReportRecord
};

/// A call stack in a runtime's own heap profile; estimates.
struct CensusSite {
    uint64_t live_bytes = 0;
    uint64_t live_blocks = 0;
    uint64_t allocated_bytes = 0;  // since the process began
    uint64_t allocations = 0;
    uint64_t live_samples = 0;           // what the live figures are estimated from
    std::vector<std::string> functions;  // from the allocation's caller to the start
};

/// What is live of a sampled heap from before the attach, in no other figure; estimates.
struct BeforeAttachRecord {
    uint64_t live_bytes = 0;
    uint64_t live_blocks = 0;
    uint64_t error_bytes = 0;  // one standard error of live_bytes
    uint64_t sites_total = 0;
    std::vector<CensusSite> sites;  // by live_bytes; of their figures the live ones
};

/// One report: a scope at one moment. What the JSON contract does not name is for people (text).
struct ReportRecord {
    uint64_t sequence = 0;
    bool is_final = false;
    int64_t time_unix_ns = 0;
    uint64_t elapsed_ns = 0;  // since the attach
    ReportScope scope;
    HeapFigures heap;
    MappingTotals mappings;
    MemoryFigures memory;
    Accuracy accuracy;
    std::optional<OverheadFigures> overhead;  // none: not measured yet, or not measurable
    std::optional<StopFigures> stop;
    std::vector<AllocatorEntry> allocators;  // most called first
    uint64_t sites_total = 0;
    std::vector<SiteEntry> sites;
    std::vector<ProcessEntry> processes;  // all that live or ended since the last report, by pid; not by process
    EndedProcesses ended_processes;       // that ended before
    std::optional<std::vector<TypeEntry>> types;      // with --types
    std::optional<BeforeAttachRecord> before_attach;  // of Go programs that ran already

    size_t top = 0;  // rows of `processes` that a person is shown; 0: all
    int64_t mappings_growth_bytes = 0;
    IntervalFigures interval;
    bool has_baseline = false;
    uint64_t heap_sites_total = 0;  // of `sites_total`
    SiteOrder order = SiteOrder::live;
    uint64_t older_ns = 0;
};

/// Reports of a tick that a person is not shown because there are too many.
struct RestRecord {
    uint64_t scopes = 0;
    uint64_t live_bytes = 0;
    int64_t growth_bytes = 0;
    bool have_ended = false;  // their last reports, since the previous tick
};

/// What is live in a collected heap, read without a probe (`memtrace census`): by type, or by call site.
struct CensusRecord {
    int64_t time_unix_ns = 0;
    pid_t pid = 0;
    std::string comm;
    std::string collector;    // boehm or go
    uint64_t live_bytes = 0;  // of boehm's objects as the collector rounds their sizes
    uint64_t live_blocks = 0;
    uint64_t collections = 0;  // boehm
    uint64_t typed_bytes = 0;  // ... of the objects that have a type
    uint64_t typed_blocks = 0;
    uint64_t blocks_not_read = 0;  // ... of the collector: pages of objects
    uint64_t types_total = 0;
    std::vector<TypeEntry> types;      // only their live figures; with --top not all
    uint64_t sampling_mean_bytes = 0;  // go: the distance of its samples; 0: every object was counted
    uint64_t error_bytes = 0;          // ... one standard error of live_bytes
    uint64_t live_samples = 0;
    uint64_t sites_total = 0;
    std::vector<CensusSite> sites;  // ... with --top not all
};

/// Blocks of one size in an allocator's chunks.
struct ChunkSizeEntry {
    uint64_t chunk_bytes = 0;
    uint64_t least_bytes = 0;  // that a program asks for to get such a chunk
    uint64_t most_bytes = 0;
    bool is_mapped = false;   // each a mapping of its own
    uint64_t live_bytes = 0;  // of whole chunks
    uint64_t live_blocks = 0;
    uint64_t free_bytes = 0;
    uint64_t free_blocks = 0;
    int64_t growth_bytes = 0;  // since the first census; 0 in that
    int64_t growth_blocks = 0;
    bool has_grown_each_time = false;
};

/// What a malloc has given out and what it keeps, read without a probe (`memtrace census`). Sizes are of whole chunks.
struct MallocCensusRecord {
    uint64_t sequence = 0;  // 1: the first
    int64_t time_unix_ns = 0;
    uint64_t elapsed_ns = 0;  // since the first census
    uint64_t read_ns = 0;     // how long this one took
    pid_t pid = 0;
    std::string comm;
    std::string allocator;
    std::optional<std::string> version;
    uint64_t arenas = 0;
    uint64_t system_bytes = 0;  // what the arenas have from the kernel
    uint64_t live_bytes = 0;
    uint64_t live_blocks = 0;
    std::optional<uint64_t> mapped_bytes;  // blocks with mappings of their own, in no other figure
    std::optional<uint64_t> mapped_blocks;
    uint64_t mapped_blocks_sized = 0;  // of these, those that are in `sizes`
    uint64_t thread_cached_bytes = 0;  // free, and so on
    uint64_t thread_cached_blocks = 0;
    uint64_t fast_bytes = 0;
    uint64_t fast_blocks = 0;
    uint64_t binned_bytes = 0;
    uint64_t binned_blocks = 0;
    uint64_t top_bytes = 0;
    bool has_all_fast = true;  // else free blocks in fast bins are among the live ones
    uint64_t not_found_bytes = 0;
    uint64_t retained_bytes = 0;   // free and in memory
    uint64_t trimmable_bytes = 0;  // of it what malloc_trim(0) would give back
    int64_t growth_bytes = 0;      // of all blocks, since the first census
    uint64_t risen_bytes = 0;      // the sum over the sizes that have grown
    std::string growth_pattern;    // none, one_size or mixed
    uint64_t sizes_total = 0;
    std::vector<ChunkSizeEntry> sizes;  // the first census by live_bytes, others by growth_bytes; with --top not all
};

/// What memory of one use does over time.
struct GrowthEntry {
    std::string use;  // main_heap, arenas, anonymous, gc_heap, stacks, files or shared; of a process: empty
    uint64_t rss_bytes = 0;
    int64_t rss_growth_bytes = 0;  // since the first look
    uint64_t mapped_bytes = 0;     // touched or not
    int64_t mapped_growth_bytes = 0;
    std::optional<double> slope_bytes_per_second;  // of rss_bytes, in the window
    std::string pattern;                           // unknown, flat, growing, step or shrinking
};

/// How a process's memory grows, by what it is used for (--growth).
struct GrowthRecord {
    uint64_t sequence = 0;  // 1: the first look
    int64_t time_unix_ns = 0;
    uint64_t elapsed_ns = 0;  // since the first look
    uint64_t window_ns = 0;   // until now, that slopes and patterns are of; 0: none yet
    pid_t pid = 0;
    std::string comm;
    bool has_glibc = false;  // so that a census can tell more
    GrowthEntry all;
    std::vector<GrowthEntry> uses;  // whose sums are those of `all`
};

/// One allocation or free as it happened (--trace).
struct BlockEventRecord {
    bool is_free = false;
    uint64_t time_ns = 0;  // CLOCK_MONOTONIC
    pid_t pid = 0;
    pid_t tid = 0;
    std::string function;
    uint64_t address = 0;
    uint64_t size_bytes = 0;
    std::optional<std::string> site;
};

/// Something that the reader should know and that no figure says.
struct WarningRecord {
    std::string code;
    std::string message;
};

/// The last record.
struct EndRecord {
    std::string reason;  // signal, count, exited or error
    int status = 0;
};

using Record = std::variant<StartRecord, ProcessRecord, ReportRecord, RestRecord, CensusRecord, MallocCensusRecord,
                            GrowthRecord, BlockEventRecord, WarningRecord, EndRecord>;

}  // namespace memtrace
