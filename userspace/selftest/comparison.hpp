// What a report should say, against what it says. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace memtrace {

struct Comparison {
    size_t compared = 0;                   // figures
    std::vector<std::string> differences;  // one sentence each; empty: exact
};

/// `truth` is what workload.c printed, `report` the final report (JSON lines, schema 1) of tracing it. A key that is
/// missing in either is a difference.
Comparison compare(const nlohmann::json& truth, const nlohmann::json& report);

}  // namespace memtrace
