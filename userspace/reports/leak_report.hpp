// The live report of one process: its figures, with names for the call sites that are shown. Uses heap/ and the
// interface of names below; pure but for what the implementation of SiteNames does.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heap/history.hpp"
#include "heap/ranking.hpp"
#include "reports/document.hpp"

namespace memtrace {

/// One row of the table of allocators, as a reader knows it.
struct RowName {
    std::string allocator;  // libc, c++ ...
    std::string function;
};

/// Names the call sites of a session by their index (Site::index). Asked for shown sites only, since naming is slow.
class SiteNames {
  public:
    virtual ~SiteNames() = default;
    /// From the allocation's caller to the thread's start; empty where the stack is unknown. Valid until the next call.
    virtual const std::vector<Frame>& frames(uint32_t site) = 0;
    /// 16 hex digits that are the same on every host for the same code; none where a frame cannot be named so.
    virtual std::optional<std::string> site_id(uint32_t site, std::string_view kind, std::string_view function) = 0;
    /// Why the stack is missing or ends early; none for a whole stack.
    virtual std::optional<std::string> stack_error(uint32_t site) = 0;
};

/// Row number (Site::row) to name.
using RowNames = std::function<RowName(uint32_t row)>;

/// The moment and the scope of a report, and what is not in a snapshot.
struct LeakReportInput {
    uint64_t sequence = 0;  // the same for all reports of a tick
    bool is_final = false;
    int64_t time_unix_ns = 0;
    uint64_t elapsed_ns = 0;
    uint64_t snapshot_time_ns = 0;  // Snapshot::time_ns; ages of blocks count to here
    std::string process_name;
    std::vector<std::string> allocators;  // whose code is mapped
    MemoryFigures memory;
};

struct LeakReportOptions {
    SiteOrder order = SiteOrder::live;
    size_t top = 10;  // of each kind; 0: all
    uint64_t older_ns = 0;
    bool shows_blocks = false;
};

/// Orders and cuts the call sites of `figures`, names those that stay, and fills the record. `row_names` and `names`
/// are called for sites that are shown only.
ReportRecord build_leak_report(ProcessFigures figures, const LeakReportInput& input, const LeakReportOptions& options,
                               SiteNames& names, const RowNames& row_names);

}  // namespace memtrace
