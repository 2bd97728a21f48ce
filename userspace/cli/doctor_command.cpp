#include "cli/doctor_command.hpp"

#include <fmt/format.h>

#include "base/units.hpp"
#include "probes/allocator_table.hpp"

namespace memtrace {

std::string tables_text(const TableSizes& sizes, const SessionOptions& options) {
    std::string text = fmt::format("kernel tables for {} live blocks, {} call sites, a ring of {}\n",
                                   format_count(sizes.max_live_blocks), format_count(options.max_sites),
                                   format_size(options.ring_size_bytes));
    uint64_t total_bytes = 0;
    for (const TableSize& table : sizes.tables) {
        text += fmt::format("  {:<16}  {:>12} entries  {:>10}\n", table.name, format_count(table.entries),
                            format_size(table.memory_bytes));
        total_bytes += table.memory_bytes;
    }
    text += fmt::format("  {:<16}  {:>20}  {:>10}\n", "all", "", format_size(total_bytes));
    text += fmt::format("a live block takes {:.1f} bytes at the limit; a thread of a target {}\n",
                        sizes.bytes_a_live_block, format_size(sizes.bytes_a_thread));
    return text;
}

Result<std::string> doctor_text(const Options& options) {
    const AllocatorTable table;
    SessionOptions session_options;
    session_options.table = &table;
    session_options.max_live_blocks = options.max_live_blocks;
    session_options.max_sites = options.call_sites();
    session_options.ring_size_bytes = options.ring_bytes();
    auto session = Session::open(session_options);
    if (!session) return std::move(session).error();
    return tables_text((*session)->table_sizes(), session_options);
}

}  // namespace memtrace
