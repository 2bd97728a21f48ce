#include "kernel/unwind_tables.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <algorithm>

#include "memtrace.skel.h"

namespace memtrace {

void UnwindTables::configure(memtrace_bpf& skeleton, const UnwindCapacity& capacity) {
    bpf_map__set_max_entries(skeleton.maps.unwind_rows, capacity.rows / 2);
    bpf_map__set_max_entries(skeleton.maps.unwind_pages, capacity.pages / 2);
    bpf_map__set_max_entries(skeleton.maps.unwind_rules, capacity.rules);
}

Result<std::unique_ptr<UnwindTables>> UnwindTables::map(memtrace_bpf& skeleton, const UnwindCapacity& capacity) {
    auto rows = MappedArray<uint32_t>::map(bpf_map__fd(skeleton.maps.unwind_rows), capacity.rows, "unwind_rows");
    if (!rows) return std::move(rows).error();
    auto pages = MappedArray<uint32_t>::map(bpf_map__fd(skeleton.maps.unwind_pages), capacity.pages, "unwind_pages");
    if (!pages) return std::move(pages).error();
    auto rules =
        MappedArray<mt_unwind_rule>::map(bpf_map__fd(skeleton.maps.unwind_rules), capacity.rules, "unwind_rules");
    if (!rules) return std::move(rules).error();
    auto pc_words =
        MappedArray<uint64_t>::map(bpf_map__fd(skeleton.maps.pc_caches), MT_PC_CACHES * MT_PC_CACHE_WORDS, "pc_caches");
    if (!pc_words) return std::move(pc_words).error();
    return std::unique_ptr<UnwindTables>(new UnwindTables(bpf_map__fd(skeleton.maps.unwind_files),
                                                          std::move(rows).value(), std::move(pages).value(),
                                                          std::move(rules).value(), std::move(pc_words).value()));
}

bool UnwindTables::has_room(const UnwindTable& table) const {
    return table.rows.size() <= rows_.values().size() - used_rows_ &&
           table.page_index.size() <= pages_.values().size() - used_pages_ &&
           table.rules.size() <= rules_.values().size() - used_rules_;
}

Result<void> UnwindTables::add(const mt_file& file, const UnwindTable& table, std::span<const CodeSegment> segments) {
    if (table.page_index.empty()) return add_without_cfi(file);
    if (!has_room(table)) {
        (void)add_without_cfi(file);
        return Error{"cannot load an unwind table", "the tables are full"};
    }
    mt_unwind_file value{};
    value.state = MT_UNWIND_READY;
    value.first_page = static_cast<uint32_t>(used_pages_);
    value.page_count = static_cast<uint32_t>(table.page_index.size());
    value.first_rule = static_cast<uint32_t>(used_rules_);
    value.first_page_vaddr = table.first_page_vaddr;
    for (size_t index = 0; index < segments.size() && index < MT_UNWIND_SEGMENTS; ++index)
        value.segments[index] = {segments[index].offset, segments[index].size_bytes, segments[index].vaddr};
    const auto first_row = static_cast<uint32_t>(used_rows_);
    std::ranges::copy(table.rows, rows_.values().begin() + static_cast<ptrdiff_t>(used_rows_));
    std::ranges::copy(table.rules, rules_.values().begin() + static_cast<ptrdiff_t>(used_rules_));
    std::ranges::transform(table.page_index, pages_.values().begin() + static_cast<ptrdiff_t>(used_pages_),
                           [&](uint32_t row) { return row + first_row; });
    used_rows_ += table.rows.size();
    used_pages_ += table.page_index.size();
    used_rules_ += table.rules.size();
    // Published last: who finds the file finds its rows.
    return publish(file, value);
}

Result<void> UnwindTables::add_without_cfi(const mt_file& file) {
    mt_unwind_file value{};
    value.state = MT_UNWIND_NO_CFI;
    return publish(file, value);
}

Result<void> UnwindTables::publish(const mt_file& file, const mt_unwind_file& value) {
    if (bpf_map_update_elem(files_fd_, &file, &value, BPF_ANY) == 0) return {};
    return Error{"cannot load an unwind table", errno_text(errno)};
}

void UnwindTables::clear_cache(uint32_t owner) {
    if (owner >= MT_PC_CACHES) return;
    const auto words = pc_words_.values().subspan(size_t{owner} * MT_PC_CACHE_WORDS, MT_PC_CACHE_WORDS);
    for (uint64_t& word : words)
        __atomic_store_n(&word, 0, __ATOMIC_RELAXED);
}

}  // namespace memtrace
