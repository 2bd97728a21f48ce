// From the tracer's figures to written reports: one a process and tick. Uses tracing/, heap/ and reports/.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <vector>

#include "cli/options.hpp"
#include "cli/output.hpp"
#include "heap/history.hpp"
#include "tracing/tracer.hpp"

namespace memtrace {

/// For one thread.
class Reporter {
  public:
    /// The figures of growth count from here: call it when recording starts.
    Reporter(const Options& options, Tracer& tracer, Output& output);

    /// Reports on every target that is still there; `is_final`: no report follows.
    Result<void> report(bool is_final);
    /// The last reports of processes that have ended, as they were then; of many at once, since each reading of the
    /// tables takes a while.
    Result<void> report_end(const std::vector<pid_t>& pids);
    /// What is live now is known: growth counts from here.
    void set_baseline();
    /// True as soon as a report had to say that something was lost.
    bool has_losses() const { return has_losses_; }

  private:
    Result<void> write_reports(const std::vector<pid_t>& pids, bool is_final, bool has_ended);
    MemoryFigures memory_of(pid_t pid);

    const Options& options_;
    Tracer& tracer_;
    Output& output_;
    uint64_t start_ns_;
    History history_;
    uint64_t sequence_ = 0;
    bool has_losses_ = false;
};

}  // namespace memtrace
