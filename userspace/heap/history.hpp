// Figures per scope and per call site: a snapshot and the mapping ledger, seen against the previous report and the
// baseline. Pure: no clock, no I/O. Invariants, at every report: allocated - freed - ended = live, in bytes and in
// blocks, and the heap's sums equal those of all its call sites but the inherited ones. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "heap/figures.hpp"
#include "heap/mappings.hpp"
#include "heap/readings.hpp"
#include "heap/scope_draft.hpp"
#include "heap/scopes.hpp"
#include "heap/snapshot.hpp"

namespace memtrace {

struct FigureOptions {
    uint64_t older_ns = 0;  // > 0: sites show only blocks at least that old
    bool keeps_blocks = false;
    bool is_size_filtered = false;
    uint32_t sampling_mean_bytes = 0;  // in force now; 0: every block is recorded
    uint64_t side_band_lost = 0;       // records that the user side missed: they could be of any process
    const std::unordered_map<uint32_t, uint64_t>* resident_bytes = nullptr;  // by call site; none: not looked up
    std::vector<pid_t> exited = {};  // processes whose last report this is: shown as they ended
    std::optional<std::vector<uint32_t>> scopes = std::nullopt;  // only these; none: all in which a process lives
};

/// Remembers what was live at the previous report and at the baseline, and what ended processes leave in the sums.
class History {
  public:
    /// `attach_time_ns` (CLOCK_MONOTONIC) is where the first interval starts.
    explicit History(uint64_t attach_time_ns, ScopeKind kind = ScopeKind::process)
        : scopes_(kind), previous_time_ns_(attach_time_ns) {}

    /// Every target; what is of no target is in no figure.
    void update(std::span<const ProcessIdentity> identities) { scopes_.update(identities); }
    const Scopes& scopes() const { return scopes_; }

    /// Figures by scope. Changes nothing.
    std::map<uint32_t, ScopeFigures> figures(const Snapshot& snapshot, const MappingLedger& ledger,
                                             const FigureOptions& options) const;
    /// The figures were reported: they are what the next report is compared with. With `options.scopes` only theirs.
    void advance(const Snapshot& snapshot, const MappingLedger& ledger, const FigureOptions& options = {});
    /// What is live now is known: growth since the baseline counts from here.
    void set_baseline(const Snapshot& snapshot, const MappingLedger& ledger);
    /// A snapshot that is not reported still counts for the peak.
    void observe(const Snapshot& snapshot, const MappingLedger& ledger);
    /// The processes have ended, and have had their last report where they had one to themselves: what they held is
    /// ended, what they did stays in the sums of their scope. A scope without a process is forgotten, but one by exe
    /// and that of all.
    void end_processes(const Snapshot& snapshot, const MappingLedger& ledger, std::span<const pid_t> pids,
                       const KeepStack& keep_stack);

    /// Address spaces that an exec of a living process has ended are kept in the sums alone; returns their owners, of
    /// which nothing is asked for any more.
    std::vector<uint32_t> end_address_spaces(const Snapshot& snapshot, const MappingLedger& ledger,
                                             const KeepStack& keep_stack);

  private:
    struct KnownSite {
        uint64_t live_bytes = 0;
        uint64_t allocated_bytes = 0;
    };
    struct Known {
        std::unordered_map<SiteKey, KnownSite, SiteKeyHash> sites;
        std::unordered_map<uint64_t, uint64_t> live_bytes;  // by number of the process
        SiteTotals heap;
        uint64_t heap_live_bytes = 0;
        uint64_t mappings_live_bytes = 0;
    };
    using KnownScopes = std::unordered_map<uint32_t, Known>;
    using Drafts = std::map<uint32_t, ScopeDraft>;

    void add_inherited(std::map<uint32_t, ScopeFigures>& figures, const Readings& readings, const Snapshot& snapshot,
                       const FigureOptions& options) const;
    Drafts drafts_of(const Readings& readings, const MappingLedger& ledger,
                     const std::optional<std::vector<uint32_t>>& only) const;
    static void correct_mappings(Drafts& drafts, const Readings& readings, const MappingLedger& ledger,
                                 const std::unordered_map<uint32_t, ScopePlace>& places);
    Drafts ended_drafts(const Snapshot& snapshot, const MappingLedger& ledger,
                        const std::function<bool(const AddressSpace& space)>& has_ended) const;
    static Known known_of(const ScopeDraft& draft);
    static const Known& known_in(const KnownScopes& scopes, uint32_t scope);
    static uint64_t error_of(const ScopeDraft& draft, const Snapshot& snapshot);
    void add_growth(ScopeFigures& figures, const ScopeDraft& draft) const;
    SiteFigures grown(uint32_t scope, const ScopeDraft::DraftSite& site) const;
    void note_peaks(const Drafts& drafts);
    ScopeFigures scope_figures(uint32_t scope, const ScopeDraft& draft, const BlocksBySite& blocks,
                               const Snapshot& snapshot, const FigureOptions& options) const;
    void add_processes(ScopeFigures& figures, const ScopeDraft& draft) const;

    Scopes scopes_;
    KnownScopes previous_;
    KnownScopes baseline_;
    std::unordered_map<uint32_t, EndedFigures> ended_;
    std::unordered_map<uint32_t, uint64_t> peaks_;
    bool has_baseline_ = false;
    uint64_t previous_time_ns_ = 0;
};

}  // namespace memtrace
