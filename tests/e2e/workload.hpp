// A program of tests/workloads that waits for `go` before each of its cases and answers with the truth.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "e2e/child.hpp"

namespace memtrace::e2e {

using Json = nlohmann::json;

/// The built file of a workload.
std::string workload_path(const std::string& name);

class Workload {
  public:
    /// Starts `program` (a path) and returns when it is ready.
    explicit Workload(const std::string& program, const std::vector<std::string>& arguments = {},
                      std::vector<std::string> environment = {});

    pid_t pid() const { return child_.pid(); }
    Child& child() { return child_; }
    /// Runs the next case and returns its truth: cumulative, the figures of all cases so far.
    Json go();
    /// Ends it with that status and returns the status with which it really ended.
    int quit(int status);

  private:
    Child child_;
};

/// The names of a program's cases.
std::vector<std::string> cases_of(const std::string& program);

}  // namespace memtrace::e2e
