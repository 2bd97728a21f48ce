// The built memtrace as a test sees it: a child whose stdout is JSON lines. Every report that passes through here is
// held to the laws that hold for all of them (the identity; the sums of the sites).
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "e2e/workload.hpp"

namespace memtrace::e2e {

/// This kernel does not have the rung of attaching that the test asked for.
struct RungMissing : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// The rungs that tests run on: all of them, or those of $MEMTRACE_TEST_RUNGS, separated by spaces.
std::vector<std::string> rungs();

/// Runs `check` in a section for each of rungs(); one that this kernel does not have is skipped with a warning.
void on_every_rung(const std::function<void(const std::string& rung)>& check);

std::string memtrace_path();

/// What a memtrace that has ended left behind.
struct MemtraceEnd {
    int status = 0;
    std::vector<Json> records;  // those that no one took before
    std::string errors;

    /// The last report of all, which must be final.
    const Json& final_report() const;
};

class Memtrace {
  public:
    /// Starts `memtrace ARGUMENTS... --format json`.
    explicit Memtrace(const std::vector<std::string>& arguments);

    Child& child() { return child_; }
    /// Returns when it says on stderr that it is attached; throws RungMissing when it ends with status 69.
    void wait_attached();
    /// Asks for a report now and returns it; for `count` targets, the reports of all, in the order of arrival.
    Json report();
    std::vector<Json> reports(size_t count);
    /// The next record of that type.
    Json next(const std::string& type);
    /// SIGINT, and its end.
    MemtraceEnd stop();
    /// Its end, which comes by itself.
    MemtraceEnd wait();

  private:
    Child child_;
    bool shows_all_sites_;
};

/// Options of a session that reports only when it is told to, with every call site.
std::vector<std::string> on_demand(const std::string& rung, pid_t pid);

/// `report` keeps the laws of every report. `has_all_sites`: nothing was asked to be left out.
void check_laws(const Json& report, bool has_all_sites);
/// `report` shows exactly what the workload says that it did, and lost nothing.
void check_truth(const Json& truth, const Json& report);
/// Sums of the heap sites whose first frame is `function`.
struct SiteSum {
    int64_t live_bytes = 0;
    int64_t live_blocks = 0;
    int64_t allocated_bytes = 0;
    int64_t allocations = 0;
    int sites = 0;
};
SiteSum sites_called(const Json& report, const std::string& function);

/// Ends the test program with status 77, which is a skip, when it does not run as root.
void require_root();

}  // namespace memtrace::e2e
