// The live report of one scope: its figures, with names for the call sites that are shown. Uses heap/ and the
// interface of names below; pure but for what the implementation of SiteNames does.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "heap/figures.hpp"
#include "heap/ranking.hpp"
#include "reports/document.hpp"
#include "reports/types.hpp"

namespace memtrace {

/// One row of the table of allocators, as a reader knows it.
struct RowName {
    std::string allocator;  // libc, c++ ...
    std::string function;
    std::string kind = "heap";  // of a call site: heap, mapping or gc
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

/// What is known of a process besides its figures.
struct ProcessDescription {
    std::optional<pid_t> ppid;
    std::string comm;
    std::optional<std::string> exe;
    std::optional<bool> since_birth;
    std::optional<uint64_t> window_ns;
    uint64_t started_ns = 0;           // as LeakReportInput::elapsed_ns counts
    std::optional<uint64_t> ended_ns;  // ...
    std::optional<uint64_t> rss_bytes;
};

/// By ProcessFigures::number.
using ProcessDescriptions = std::unordered_map<uint64_t, ProcessDescription>;

/// The moment and the scope of a report, and what is not in a snapshot.
struct LeakReportInput {
    uint64_t sequence = 0;  // the same for all reports of a tick
    bool is_final = false;
    int64_t time_unix_ns = 0;
    uint64_t elapsed_ns = 0;
    uint64_t snapshot_time_ns = 0;  // Snapshot::time_ns; ages of blocks count to here
    std::string scope_name;
    std::vector<std::string> allocators;  // whose code is mapped
    MemoryFigures memory;
    const ProcessDescriptions* processes = nullptr;  // of every row of the figures
    std::vector<NamedObjects> objects;               // of its collected heap
    std::optional<BeforeAttachRecord> before_attach;
};

struct LeakReportOptions {
    SiteOrder order = SiteOrder::live;
    size_t top = 10;  // of each kind; 0: all
    uint64_t older_ns = 0;
    bool shows_blocks = false;
    bool shows_types = false;
    std::string only_type;   // call sites show what they hold of it; empty: of all
    uint64_t min_count = 0;  // call sites and types with fewer allocations are not shown
};

/// Adds what another process has; one standard error of both is that of their sum.
void add(std::optional<BeforeAttachRecord>& all, BeforeAttachRecord one);

/// "process", "tree" ...
std::string_view scope_kind_name(ScopeKind kind);

/// Orders and cuts the call sites of `figures`, names those that stay, and fills the record. `row_names` and `names`
/// are called for sites that are shown only.
ReportRecord build_leak_report(ScopeFigures figures, const LeakReportInput& input, const LeakReportOptions& options,
                               SiteNames& names, const RowNames& row_names);

}  // namespace memtrace
