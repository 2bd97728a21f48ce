// The loop of most accounting tests: a workload runs case by case, and after each the report must equal the truth that
// the program prints about itself.
#pragma once

#include "e2e/memtrace.hpp"

namespace memtrace::e2e {

struct CaseRun {
    std::string program;                        // a path
    std::vector<std::string> cases = {};        // none: all
    std::vector<std::string> environment = {};  // the program's
    std::vector<std::string> options = {};      // memtrace's
    bool has_one_report = false;                // after the last case: quicker, and a failure does not tell which case
};

/// In one session on `rung`; the program must end as it wants to.
void check_cases(const CaseRun& run, const std::string& rung);

}  // namespace memtrace::e2e
