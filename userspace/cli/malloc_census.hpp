// Censuses of glibc's malloc in one process as records. Uses runtimes and reports.
#pragma once

#include <optional>

#include "base/result.hpp"
#include "cli/options.hpp"
#include "processes/process.hpp"
#include "reports/document.hpp"
#include "runtimes/census_growth.hpp"

namespace memtrace {

/// For one thread.
class MallocCensusTaker {
  public:
    explicit MallocCensusTaker(const Census& options) : options_(options) {}

    /// Errors as for take_glibc_census. One that fails is none of the series; after an exec a new series begins.
    Result<MallocCensusRecord> take();

  private:
    bool is_another_program(const ProcessInfo& process) const;

    Census options_;
    ProcessInfo process_;  // that the series is of
    CensusHistory history_;
    uint64_t taken_ = 0;
    uint64_t first_ns_ = 0;  // of CLOCK_MONOTONIC
};

}  // namespace memtrace
