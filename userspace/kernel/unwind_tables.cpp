#include "kernel/unwind_tables.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace memtrace {
namespace {

/// Words of one struct pc_cache (bpf/maps.h): of each entry the address with its rule, then its place.
constexpr uint32_t pc_cache_words = 2 * MT_PC_CACHE_ENTRIES;

}  // namespace

void UnwindTables::configure(const UnwindMaps& maps, const UnwindCapacity& capacity) {
    bpf_map__set_max_entries(maps.rows, capacity.rows / 2);
    bpf_map__set_max_entries(maps.pages, capacity.pages / 2);
    bpf_map__set_max_entries(maps.rules, capacity.rules);
}

Result<std::unique_ptr<UnwindTables>> UnwindTables::map(const UnwindMaps& maps, const UnwindCapacity& capacity) {
    auto rows = MappedArray<uint32_t>::map(bpf_map__fd(maps.rows), capacity.rows, "unwind_rows");
    if (!rows) return std::move(rows).error();
    auto pages = MappedArray<uint32_t>::map(bpf_map__fd(maps.pages), capacity.pages, "unwind_pages");
    if (!pages) return std::move(pages).error();
    auto rules = MappedArray<mt_unwind_rule>::map(bpf_map__fd(maps.rules), capacity.rules, "unwind_rules");
    if (!rules) return std::move(rules).error();
    auto pc_words = MappedArray<uint64_t>::map(bpf_map__fd(maps.pc_caches), MT_PC_CACHES * pc_cache_words, "pc_caches");
    if (!pc_words) return std::move(pc_words).error();
    return std::unique_ptr<UnwindTables>(new UnwindTables(bpf_map__fd(maps.files), std::move(rows).value(),
                                                          std::move(pages).value(), std::move(rules).value(),
                                                          std::move(pc_words).value()));
}

std::optional<UnwindTables::Place> UnwindTables::take_place(const UnwindTable& table) {
    const auto take = [](auto& store, size_t size, Range& range) {
        if (size > store.values.values().size()) return false;
        const auto count = static_cast<uint32_t>(size);
        const auto first = store.regions.take(count);
        if (first) range = {*first, count};
        return first.has_value();
    };
    Place place;
    if (take(rows_, table.rows.size(), place.rows) && take(pages_, table.page_index.size(), place.pages) &&
        take(rules_, table.rules.size(), place.rules))
        return place;
    give_back(place);
    return std::nullopt;
}

void UnwindTables::give_back(const Place& place) {
    rows_.regions.give_back(place.rows.first, place.rows.count);
    pages_.regions.give_back(place.pages.first, place.pages.count);
    rules_.regions.give_back(place.rules.first, place.rules.count);
}

Result<void> UnwindTables::add(const mt_file& file, const UnwindTable& table, std::span<const CodeSegment> segments) {
    if (table.page_index.empty()) return add_without_cfi(file);
    remove(file);
    const auto place = take_place(table);
    if (!place) {
        (void)add_without_cfi(file);
        return Error{"cannot load an unwind table", "the tables are full"};
    }
    mt_unwind_file value{};
    value.state = MT_UNWIND_READY;
    value.first_page = place->pages.first;
    value.page_count = place->pages.count;
    value.first_rule = place->rules.first;
    value.first_page_vaddr = table.first_page_vaddr;
    for (size_t index = 0; index < segments.size() && index < MT_UNWIND_SEGMENTS; ++index)
        value.segments[index] = {segments[index].offset, segments[index].size_bytes, segments[index].vaddr};
    std::ranges::copy(table.rows, rows_.values.values().begin() + place->rows.first);
    std::ranges::copy(table.rules, rules_.values.values().begin() + place->rules.first);
    std::ranges::transform(table.page_index, pages_.values.values().begin() + place->pages.first,
                           [&](uint32_t row) { return row + place->rows.first; });
    places_.emplace(std::pair(file.device, file.inode), *place);
    // Published last: who finds the file finds its rows.
    return publish(file, value);
}

void UnwindTables::remove(const mt_file& file) {
    const auto found = places_.find({file.device, file.inode});
    bpf_map_delete_elem(files_fd_, &file);
    if (found == places_.end()) return;
    // A program that found the file before is done when a grace period is over (MEMBARRIER_CMD_GLOBAL, membarrier(2)).
    syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
    give_back(found->second);
    places_.erase(found);
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
    const auto words = pc_words_.values().subspan(size_t{owner} * pc_cache_words, pc_cache_words);
    for (size_t index = 0; index < words.size(); index += 2)
        __atomic_store_n(&words[index], 0, __ATOMIC_RELAXED);
}

}  // namespace memtrace
