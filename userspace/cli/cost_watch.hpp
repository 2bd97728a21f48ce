// Says beforehand what tracing will cost, measures what it does cost, and keeps it below --max-overhead. Uses tracing/
// and reports' records.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "cli/options.hpp"
#include "reports/document.hpp"
#include "tracing/overhead.hpp"
#include "tracing/tracer.hpp"

namespace memtrace {

/// A tenth of the time it measures. For one thread.
class CostWatch {
  public:
    /// Both must outlive it.
    CostWatch(const Options& options, Tracer& tracer);

    /// Readable when on_wakeup has something to do.
    int fd() const { return timer_.get(); }
    /// Counts the calls of running targets for a moment, before recording starts, and says what tracing them will cost.
    /// With a budget chooses the distance of sampling, or says that it cannot be kept. An Error only with a budget.
    Result<void> predict();
    /// Recording has started. An Error only with a budget.
    Result<void> start();
    /// Does what is due; a text: what was changed to keep the budget.
    std::optional<std::string> on_wakeup();

    /// The last measurement; none yet, or it cannot be measured.
    std::optional<OverheadFigures> figures() const;
    /// Why the probes were taken away; none: they are there.
    const std::optional<std::string>& stop_reason() const { return stop_reason_; }

  private:
    Result<void> begin();
    void wake_after(uint64_t duration_ns);
    std::optional<std::string> keep_budget();
    std::string stop(const Overhead& overhead);

    const Options& options_;
    Tracer& tracer_;
    OverheadMeter meter_;
    std::optional<Budget> budget_;
    Fd timer_;
    std::optional<Overhead> last_;
    std::optional<std::string> stop_reason_;
};

}  // namespace memtrace
