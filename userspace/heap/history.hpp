// Figures per process and per call site: a snapshot and the mapping ledger, seen against the previous report and the
// baseline. Pure: no clock, no I/O. Invariants, at every report: allocated - freed - ended = live, in bytes and in
// blocks, and the heap's sums equal those of all its call sites. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "heap/accuracy.hpp"
#include "heap/mappings.hpp"
#include "heap/snapshot.hpp"

namespace memtrace {

/// Ages of live blocks in nanoseconds; `median_ns` is the lower median.
struct Ages {
    uint64_t min_ns = 0;
    uint64_t median_ns = 0;
    uint64_t max_ns = 0;
};

/// One call site at a report. `totals` is of the whole time; `live_*` is 0 for a site whose address space has ended
/// while its process lives on (then it is in HeapFigures::ended_*).
struct SiteFigures {
    uint32_t site = 0;
    uint32_t row = 0;
    uint32_t flags = 0;  // enum mt_site_flags
    bool is_mapping = false;
    SiteTotals totals;
    uint64_t live_bytes = 0;  // with FigureOptions::older_ns: of blocks that old
    uint64_t live_blocks = 0;
    int64_t growth_bytes = 0;                 // of all its live bytes, since the previous report
    int64_t growth_since_baseline_bytes = 0;  // ... since the attach or the last baseline
    uint64_t allocated_since_previous_bytes = 0;
    std::optional<Ages> ages;   // none without blocks
    std::vector<Block> blocks;  // with FigureOptions::keeps_blocks, oldest first
};

/// Sums over all heap sites of one process.
struct HeapFigures {
    SiteTotals totals;
    uint64_t live_bytes = 0;
    uint64_t live_blocks = 0;
    uint64_t ended_bytes = 0;
    uint64_t ended_blocks = 0;
    uint64_t peak_live_bytes = 0;
    int64_t growth_bytes = 0;
    int64_t growth_since_baseline_bytes = 0;
};

/// What happened between the previous report (or the attach) and this one.
struct IntervalFigures {
    uint64_t duration_ns = 0;
    uint64_t allocated_bytes = 0;
    uint64_t allocations = 0;
    uint64_t freed_bytes = 0;
    uint64_t frees = 0;
};

/// One process (a pid, with all the address spaces that it had) at one snapshot.
struct ProcessFigures {
    pid_t pid = 0;
    HeapFigures heap;
    MappingTotals mappings;
    int64_t mappings_growth_bytes = 0;
    IntervalFigures interval;
    Accuracy accuracy;
    bool has_baseline = false;       // growth_since_baseline_bytes counts from USR2, not from the attach
    std::vector<SiteFigures> sites;  // heap and mapping sites that were ever used (and pass `older_ns`), in no order
};

struct FigureOptions {
    uint64_t older_ns = 0;  // > 0: sites show only blocks at least that old
    bool keeps_blocks = false;
    bool is_size_filtered = false;
    uint64_t side_band_lost = 0;        // records that the user side missed: they could be of any process
    std::vector<pid_t> exited = {};     // processes whose last report this is: shown as they ended
    std::vector<pid_t> processes = {};  // have figures even where nothing of them was seen: losses count there too
};

/// Remembers what was live at the previous report and at the baseline.
class History {
  public:
    /// `attach_time_ns` (CLOCK_MONOTONIC) is where the first interval starts.
    explicit History(uint64_t attach_time_ns) : previous_time_ns_(attach_time_ns) {}

    /// Figures of every process of the snapshot. Changes nothing.
    std::unordered_map<pid_t, ProcessFigures> figures(const Snapshot& snapshot, const MappingLedger& ledger,
                                                      const FigureOptions& options) const;
    /// The figures were reported: they are what the next report is compared with.
    void advance(const Snapshot& snapshot, const MappingLedger& ledger);
    /// What is live now is known: growth since the baseline counts from here.
    void set_baseline(const Snapshot& snapshot, const MappingLedger& ledger);
    /// A snapshot that is not reported still counts for the peak.
    void observe(const Snapshot& snapshot);

    /// Growth of the resident set since `note_rss` was last called for `pid`; none the first time.
    std::optional<int64_t> rss_growth(pid_t pid, uint64_t rss_bytes) const;
    void note_rss(pid_t pid, uint64_t rss_bytes) { previous_rss_[pid] = rss_bytes; }
    /// The process has had its last report.
    void forget(pid_t pid);

  private:
    struct KnownSite {
        uint64_t live_bytes = 0;  // 0 where the address space has ended
        SiteTotals totals;
    };
    using KnownSites = std::unordered_map<uint32_t, KnownSite>;  // by site index

    static KnownSites known_sites(const Snapshot& snapshot, const MappingLedger& ledger);
    SiteFigures site_figures(const Site& site, const SiteTotals& totals, bool is_mapping, bool is_living) const;
    void add_to_sums(ProcessFigures& process, const SiteFigures& site) const;
    void finish(ProcessFigures& process, const Snapshot& snapshot, const FigureOptions& options) const;

    KnownSites previous_;
    KnownSites baseline_;
    bool has_baseline_ = false;
    uint64_t previous_time_ns_ = 0;
    std::unordered_map<pid_t, uint64_t> peaks_;
    std::unordered_map<pid_t, uint64_t> previous_rss_;
};

}  // namespace memtrace
