// What the person at the terminal asked for, checked: whoever holds these values need not check them again. Plain data,
// uses probes/ for the user's functions. Units are in the names; a default is what no option means.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "probes/user_functions.hpp"

namespace memtrace {

enum class SortOrder { live, count, growth, age, rate };
/// What a report is of.
enum class ReportBy { process, tree, exe, cgroup, all };
enum class OutputFormat { text, json };
enum class ColorChoice { automatic, always, never };
/// How probes are attached; `best` is the first of the others that the running kernel has.
enum class AttachChoice { best, session, multi, perf };

/// A tracing session. At least one target is set; all add up, and none is given twice.
struct Options {
    std::vector<pid_t> pids;
    std::vector<std::string> executables;  // -x: each a name, or a path when there is a '/' in it
    std::vector<std::string> cgroups;      // --cgroup: each a path below the cgroup2 mount or in it
    std::vector<std::string> containers;   // --container: each an id, the beginning of one, or a name
    bool traces_all = false;               // -A
    std::vector<std::string> command;      // program and arguments; empty: none is started
    bool follows_children = false;         // -f: the descendants of all these too
    bool is_from_birth = false;            // processes that start later are traced from their first allocation
    bool is_dry_run = false;               // what would be probed is shown, and nothing is traced
    bool waits_for_targets = true;         // for what matches no process yet; false: that is no_such_target

    bool has_targets() const {
        return traces_all || !pids.empty() || !command.empty() || !executables.empty() || !cgroups.empty() ||
               !containers.empty();
    }
    /// Processes that start later may become targets.
    bool has_future_targets() const {
        return traces_all || follows_children || !executables.empty() || !cgroups.empty() || !containers.empty();
    }

    bool has_one_process() const { return !has_future_targets() && pids.size() + (command.empty() ? 0 : 1) == 1; }

    uint64_t interval_ns = 5'000'000'000;
    std::optional<uint64_t> count;  // reports until the end; none: until a signal or the targets' end

    uint64_t older_ns = 0;  // reports show blocks at least that old
    uint32_t top = 10;      // call sites shown, of each kind; 0: all
    SortOrder sort = SortOrder::live;
    std::optional<ReportBy> by;  // none: as the targets suggest

    /// A host has more processes than a person wants reports; a tree was asked for as one thing.
    ReportBy report_by() const {
        if (by) return *by;
        if (traces_all) return ReportBy::all;
        return follows_children ? ReportBy::tree : ReportBy::process;
    }
    /// The whole system is many programs at a time, and a compiler alone has tens of thousands of call sites.
    uint32_t call_sites() const { return max_sites.value_or(traces_all ? 1u << 19 : 1u << 17); }
    uint32_t ring_bytes() const { return ring_size_bytes.value_or(traces_all ? 32u << 20 : 8u << 20); }
    bool shows_blocks = false;     // -a: each live block of the call sites shown
    bool shows_resident = false;   // of the live blocks of each call site, page by page
    bool traces_events = false;    // -t: each allocation and free as it happens
    bool shows_growth = false;     // --growth: how memory grows by its use, without a probe
    bool shows_types = false;      // --types: the types of a collected heap's objects
    std::string only_type;         // --type: the call sites of one type; empty: of all
    uint64_t min_count = 0;        // call sites and types with fewer allocations are not shown
    std::string type_names_path;   // a dump of the names of types; empty: none
    bool traces_go_fully = false;  // every allocation of Go programs, not those alone that their runtime samples

    std::optional<double> max_overhead;    // share of one core that tracing may cost; none: as it comes
    bool predicts_cost = true;             // calls are counted for a moment before recording starts
    std::optional<uint32_t> sample_bytes;  // mean distance of sampled bytes; none: every block is recorded
    uint64_t min_size_bytes = 0;           // both ends are recorded
    uint64_t max_size_bytes = std::numeric_limits<uint64_t>::max();

    OutputFormat format = OutputFormat::text;
    std::string output_path;  // empty: stdout
    ColorChoice color = ColorChoice::automatic;
    bool is_quiet = false;
    bool is_strict = false;  // a loss ends with status 1

    bool sees_system_calls = false;            // that change mappings, also where libc's functions are probed
    std::vector<std::string> symbol_prefixes;  // malloc is also called PREFIXmalloc
    std::vector<UserFunction> user_functions;  // --alloc and --free, each symbol of a file once
    std::string allocators_path;               // a file with more of them; empty: none

    AttachChoice attach = AttachChoice::best;
    uint32_t max_live_blocks = 1u << 20;
    std::optional<uint32_t> max_sites;           // none: as call_sites() has it
    std::optional<uint32_t> max_process_blocks;  // none: half of the table where there can be several processes
    std::optional<uint32_t> max_process_sites;
    std::optional<uint32_t> ring_size_bytes;  // a power of two, whole pages; none: as ring_bytes() has it
    uint32_t max_stack_frames = 127;          // 1 to MT_MAX_FRAMES
    uint32_t depth = 0;                       // frames that tell call sites apart; 0: all
};

/// `memtrace census PID`.
struct Census {
    pid_t pid = 0;
    std::string type_names_path;  // empty: none
    OutputFormat format = OutputFormat::text;
    std::optional<uint32_t> top;          // types or sizes shown; 0: all; none: all types, ten sizes in text
    uint64_t min_count = 0;               // types and sizes with fewer objects are not shown
    std::optional<uint64_t> interval_ns;  // none: one census
    std::optional<uint64_t> count;        // none: until a signal or the process's end
};

/// `memtrace list`.
struct ListAllocators {};

/// `memtrace list --placement -p PID`.
struct ListPlacement {
    std::vector<pid_t> pids;
};

/// `memtrace doctor [-p PID]`; of the options the sizes of tables, the way to attach and the user's functions count.
struct Doctor {
    Options options;
};

/// `memtrace selftest`.
struct SelfTest {
    std::vector<std::string> options;  // for the memtrace that traces
};

/// --help, --version: `text` goes to stdout and the status is 0.
struct ShowText {
    std::string text;
};

/// What one command line asks for.
using Request = std::variant<Options, Census, ListAllocators, ListPlacement, Doctor, SelfTest, ShowText>;

}  // namespace memtrace
