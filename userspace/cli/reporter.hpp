// From the tracer's figures to written reports: one a scope and tick. Uses tracing/, heap/ and reports/.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "cli/memory_reporter.hpp"
#include "cli/options.hpp"
#include "cli/output.hpp"
#include "heap/history.hpp"
#include "reports/leak_report.hpp"
#include "tracing/tracer.hpp"

namespace memtrace {

/// For one thread.
class Reporter {
  public:
    /// The figures of growth count from here: call it when recording starts.
    Reporter(const Options& options, Tracer& tracer, Output& output);

    /// Reports on every scope in which a target is still there; `is_final`: no report follows.
    Result<void> report(bool is_final);
    /// Targets that have ended, in the order of their ends. A scope whose last process is among them has its last
    /// report, which shows that process as it was when it ended; the others are in the next report of their scope. The
    /// tracer can forget them afterwards.
    Result<void> report_ends(const std::vector<pid_t>& pids);
    /// What is live now is known: growth counts from here.
    void set_baseline();
    /// What has ended and has had its last report gives its room back, now and then.
    void release_ended();
    /// What the next reports say of the cost of tracing.
    void set_overhead(const std::optional<OverheadFigures>& overhead) { overhead_ = overhead; }
    /// The probes were taken away.
    void note_stop(const std::string& reason);
    /// True as soon as a report had to say that something was lost.
    bool has_losses() const { return has_losses_; }

  private:
    using Figures = std::map<uint32_t, ScopeFigures>;

    /// Of one call: the snapshot that all its figures are of.
    struct Moment {
        const Snapshot& snapshot;
        bool is_final = false;
    };

    /// Processes that have ended.
    struct Ends {
        std::vector<pid_t> others;          // whose scopes have others that live
        std::vector<pid_t> last_of_scopes;  // in the order of `scopes`
        std::vector<uint32_t> scopes;       // that have their last report
    };

    Ends sort_ends(const std::vector<pid_t>& pids) const;
    void update_processes();
    void note_starts(const Snapshot& snapshot);
    void forget_ended();
    BlockDetail block_detail() const;
    FigureOptions figure_options() const;
    Result<void> write_reports(Figures& figures, const Moment& moment);
    Result<void> write_ends(Figures& figures, const Moment& moment);
    Result<void> write_report(ScopeFigures figures, const Moment& moment);
    Result<void> write_rest(RestRecord rest);
    std::string scope_name(const ScopeFigures& figures) const;
    std::vector<std::string> allocators_of(const ScopeFigures& figures) const;
    size_t most_reports() const;

    const Options& options_;
    Tracer& tracer_;
    Output& output_;
    uint64_t start_ns_;
    History history_;
    MemoryReporter memory_;
    ProcessDescriptions processes_;
    std::vector<pid_t> newcomers_;                     // that are in no snapshot yet
    bool is_started_ = false;                          // who joins from now on was not there from the start
    std::unordered_map<uint32_t, std::string> roots_;  // names of the first process, by scope
    RestRecord ends_not_shown_{.have_ended = true};
    size_t ends_shown_ = 0;  // since the last tick
    uint64_t sequence_ = 0;
    bool has_losses_ = false;
    std::optional<OverheadFigures> overhead_;
    std::optional<StopFigures> stop_;
};

}  // namespace memtrace
