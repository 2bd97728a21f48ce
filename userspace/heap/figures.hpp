// What a report says of a scope in numbers: its processes, its call sites and their sums. Pure data; uses include/ and
// the rest of this folder.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heap/accuracy.hpp"
#include "heap/mappings.hpp"
#include "heap/scopes.hpp"
#include "heap/snapshot.hpp"

namespace memtrace {

/// Ages of live blocks in nanoseconds; `median_ns` is the lower median.
struct Ages {
    uint64_t min_ns = 0;
    uint64_t median_ns = 0;
    uint64_t max_ns = 0;
};

/// A process that holds live blocks of a call site.
struct SiteHolder {
    pid_t pid = 0;
    uint64_t live_bytes = 0;  // as SiteFigures has it
    uint64_t live_blocks = 0;
};

/// One call site over all processes of a scope. `totals` is of the whole time, of ended processes too; `live_*` is of
/// address spaces that live on (what ended ones held is in HeapFigures::ended_*).
struct SiteFigures {
    uint32_t site = 0;  // whose names are those of all
    uint32_t row = 0;
    uint32_t flags = 0;  // enum mt_site_flags
    bool is_mapping = false;
    bool is_inherited = false;  // `live_*` is in HeapFigures::inherited_*, and in no other sum; the rest is 0
    SiteTotals totals;
    uint64_t live_bytes = 0;  // with FigureOptions::older_ns: of blocks that old
    uint64_t live_blocks = 0;
    MappingParts parts;                       // of a mapping's live bytes
    std::optional<uint64_t> resident_bytes;   // of all its live heap blocks; none: not looked up
    int64_t growth_bytes = 0;                 // of all its live bytes, since the previous report
    int64_t growth_since_baseline_bytes = 0;  // ... since the attach or the last baseline
    uint64_t allocated_since_previous_bytes = 0;
    std::optional<Ages> ages;             // none without blocks
    std::optional<uint64_t> error_bytes;  // one standard error of live_bytes, where that is an estimate
    std::vector<Block> blocks;            // with FigureOptions::keeps_blocks, oldest first
    std::vector<SiteHolder> holders;      // that hold most, most first; at most `most_holders`
    uint64_t holders_total = 0;
};

/// Of SiteFigures::holders.
constexpr size_t most_holders = 5;

/// Sums over all heap sites of one scope.
struct HeapFigures {
    SiteTotals totals;
    uint64_t live_bytes = 0;
    uint64_t live_blocks = 0;
    uint64_t ended_bytes = 0;
    uint64_t ended_blocks = 0;
    uint64_t inherited_bytes = 0;  // what the scope holds beside its live blocks, each once: heap/inheritance.hpp
    uint64_t inherited_blocks = 0;
    uint64_t peak_live_bytes = 0;
    int64_t growth_bytes = 0;
    int64_t growth_since_baseline_bytes = 0;
    std::optional<uint64_t> error_bytes;  // one standard error of live_bytes; none: nothing here is an estimate
};

/// What happened between the previous report (or the attach) and this one.
struct IntervalFigures {
    uint64_t duration_ns = 0;
    uint64_t allocated_bytes = 0;
    uint64_t allocations = 0;
    uint64_t freed_bytes = 0;
    uint64_t frees = 0;
};

/// One process in the table of its scope. allocated - freed - ended = live holds here too.
struct ProcessFigures {
    uint64_t number = 0;  // Scopes::Process::number
    pid_t pid = 0;
    pid_t ancestor = 0;  // the nearest one that is in the same table; 0: none
    SiteTotals totals;   // of its heap sites
    uint64_t live_bytes = 0;
    uint64_t live_blocks = 0;
    uint64_t ended_bytes = 0;
    uint64_t ended_blocks = 0;
    uint64_t mappings_live_bytes = 0;
    int64_t growth_bytes = 0;
    int64_t growth_since_baseline_bytes = 0;
    bool has_ended = false;  // since the previous report; false where it is shown as it ended
};

/// Processes of a scope that ended before the previous report, or for which the table had no room.
struct EndedProcesses {
    uint64_t count = 0;
    SiteTotals totals;
    uint64_t ended_bytes = 0;
    uint64_t ended_blocks = 0;
};

/// One scope at one snapshot.
struct ScopeFigures {
    uint32_t scope = 0;
    ScopeKind kind = ScopeKind::process;
    std::string key;  // of ScopeKind::exe and cgroup
    pid_t root = 0;   // of ScopeKind::process and tree
    HeapFigures heap;
    MappingTotals mappings;
    int64_t mappings_growth_bytes = 0;
    IntervalFigures interval;
    Accuracy accuracy;
    bool has_baseline = false;       // growth_since_baseline_bytes counts from USR2, not from the attach
    std::vector<SiteFigures> sites;  // heap and mapping sites that were ever used (and pass `older_ns`), in no order
    std::vector<ProcessFigures> processes;  // by pid
    EndedProcesses ended_processes;         // that are in no row of `processes`
};

}  // namespace memtrace
