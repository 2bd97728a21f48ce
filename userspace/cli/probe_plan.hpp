// Which probes tracing a process would set, found without setting any. Uses probes/, processes/ and tracing/.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "processes/mappings.hpp"
#include "processes/process.hpp"
#include "tracing/probe_cache.hpp"

namespace memtrace {

/// A file with code that a process maps.
struct PlannedFile {
    std::string path;
    const ProbedFile* probes = nullptr;  // lives as long as the plan
    Fd fd;                               // for reading
    bool is_new = false;                 // no process that was asked for before maps it
};

struct ProcessPlan {
    ProcessInfo process;
    std::vector<PlannedFile> files;
    std::vector<Error> unreadable;  // of files that could not be opened

    /// Whether one of the files has an allocator.
    bool has_allocator() const;
};

/// For one thread.
class ProbePlan {
  public:
    /// `table` must outlive the plan.
    explicit ProbePlan(const AllocatorTable& table) : cache_(table) {}

    /// Errors: no_such_target, not_privileged.
    Result<ProcessPlan> of_process(pid_t pid);
    /// Of files that a program will load; those that cannot be opened are left out, as they will be then.
    std::vector<PlannedFile> of_files(const std::vector<std::string>& paths);

  private:
    PlannedFile plan(const FileIdentity& identity, Fd fd, const std::string& path);

    ProbeCache cache_;
    std::set<FileIdentity> seen_;
};

}  // namespace memtrace
