// `memtrace doctor [-p PID]`: whether tracing will work here, what it takes, and what to know of a target. Sets no
// probe in another process. Uses kernel/ and what places probes.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "cli/options.hpp"
#include "kernel/kernel_features.hpp"
#include "kernel/session.hpp"

namespace memtrace {

/// The kernel's tables, one a line, with the sizes that `options` ask for.
std::string tables_text(const TableSizes& sizes, const SessionOptions& options);
std::string features_text(const std::vector<KernelFeature>& features);

struct DoctorReport {
    std::string text;              // for standard output
    std::vector<Error> obstacles;  // empty: tracing will work; the first one's status is that of the doctor
};

/// Loads the programs, as a session would, and attaches to memtrace itself to see what a probe costs.
DoctorReport doctor_report(const Options& options);

}  // namespace memtrace
