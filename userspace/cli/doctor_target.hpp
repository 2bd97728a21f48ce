// What the doctor tells of one process: whether and how it would be traced, and what could go wrong. Sets no probe.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/result.hpp"
#include "cli/probe_plan.hpp"

namespace memtrace {

struct TargetDiagnosis {
    std::string text;               // some lines
    std::optional<Error> obstacle;  // none: it can be traced
};

/// `bytes_a_thread`: what a thread of it takes in the kernel (TableSizes).
TargetDiagnosis diagnose_target(pid_t pid, ProbePlan& plan, uint64_t bytes_a_thread);

}  // namespace memtrace
