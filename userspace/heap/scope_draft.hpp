// One scope while its figures are added up: what its address spaces and call sites, and those of its ended processes,
// come to. Pure; the step between readings.hpp and history.hpp.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "heap/figures.hpp"
#include "heap/readings.hpp"
#include "heap/scopes.hpp"

namespace memtrace {

/// What the ended address spaces of a scope have left in its sums. Its size follows the call sites of the scope and the
/// processes that live.
struct EndedFigures {
    struct EndedSite {
        uint32_t site = 0;  // whose names are kept
        uint32_t flags = 0;
        SiteTotals totals;
    };
    std::unordered_map<SiteKey, EndedSite, SiteKeyHash> sites;
    MappingTotals mappings;
    Accuracy accuracy;
    std::unordered_map<uint64_t, ProcessFigures> of_living;  // by number: address spaces before their last exec
    std::vector<ProcessFigures> in_table;                    // processes that ended since the previous report
    EndedProcesses others;

    /// Rows that were reported, and those that are too many, become numbers.
    void fold(size_t rows_to_keep);
};

/// A call site whose stack can be named when its process has been forgotten.
struct KeptSite {
    uint32_t site = 0;  // the number under which it can
    StackHash stack{};  // none: one for all of a function
};
using KeepStack = std::function<KeptSite(uint32_t site)>;

/// For one thread. Holds pointers into the readings.
class ScopeDraft {
  public:
    /// A part of a call site: what one process has of it.
    struct Part {
        const SiteReading* reading = nullptr;
        pid_t pid = 0;
    };
    struct DraftSite {
        SiteKey key;
        SiteFigures figures;
        std::vector<Part> parts;
    };

    void add_process(const ScopePlace& place) { process(place); }
    void add_space(const ScopePlace& place, const SpaceReading& reading);
    void add_site(const ScopePlace& place, const SiteReading& reading);
    /// `correction` is of a site with this key, whichever process it is of.
    void correct(const MappingCorrection& correction, const SiteKey& key);
    void add_ended(const EndedFigures& ended);
    /// Everything here has ended: adds it to `ended`. `lives_on`: whether an exec was the end, and the process is still
    /// in this scope; else it gets a row in the table of the ended ones.
    void end_into(EndedFigures& ended, const KeepStack& keep_stack,
                  const std::function<bool(const ProcessFigures& process)>& lives_on) const;

    const std::vector<DraftSite>& sites() const { return sites_; }
    const std::vector<ProcessFigures>& processes() const { return processes_; }
    const Accuracy& accuracy() const { return accuracy_; }
    const MappingTotals& mappings() const { return mappings_; }
    uint64_t heap_live_bytes() const;

  private:
    DraftSite& site(const SiteKey& key, uint32_t site, uint32_t row);
    ProcessFigures& process(const ScopePlace& place);

    std::vector<DraftSite> sites_;
    std::unordered_map<SiteKey, size_t, SiteKeyHash> site_positions_;
    std::vector<ProcessFigures> processes_;
    std::unordered_map<uint64_t, size_t> process_positions_;  // by ScopePlace::process
    MappingTotals mappings_;
    Accuracy accuracy_;
};

}  // namespace memtrace
