// What it costs memtrace that many processes of a tree come and go. Uses the other files of this folder.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "kernel/links.hpp"

namespace memtrace {

struct EndTimes {
    double children_seconds = 0;  // while they came and went
    double report_ms = 0;         // then, until all of them are in a report
    double memtrace_seconds = 0;  // of memtrace's own processor time, for all of it
};

/// A shell starts `children` programs, one after the other, under the program at `memtrace_path` with -f.
Result<EndTimes> measure_ends(const std::string& memtrace_path, AttachRung rung, uint32_t children);

}  // namespace memtrace
