#include "heap/scope_draft.hpp"

#include <algorithm>
#include <functional>

namespace memtrace {
namespace {

/// Flags of stacks that ended before the thread's start, but for those that the kernel side counts itself.
constexpr uint32_t cut_short =
    MT_SITE_STACK_NO_CFI | MT_SITE_STACK_UNREADABLE | MT_SITE_STACK_UNSUPPORTED | MT_SITE_STACK_NO_PROGRESS;

/// What an address space before left in the process's sums.
void add_left(ProcessFigures& process, const ProcessFigures& left) {
    process.totals += left.totals;
    process.ended_bytes += left.ended_bytes;
    process.ended_blocks += left.ended_blocks;
}

/// What is still in the table, at least, when more end than it has room for.
constexpr size_t most_ended_rows = 1000;

}  // namespace

void EndedFigures::fold(size_t rows_to_keep) {
    if (in_table.size() <= rows_to_keep) return;
    std::ranges::stable_sort(in_table, std::greater(), &ProcessFigures::ended_bytes);
    for (size_t row = rows_to_keep; row < in_table.size(); ++row) {
        const ProcessFigures& figures = in_table[row];
        others.count += 1;
        others.totals += figures.totals;
        others.ended_bytes += figures.ended_bytes;
        others.ended_blocks += figures.ended_blocks;
    }
    in_table.resize(rows_to_keep);
}

ScopeDraft::DraftSite& ScopeDraft::site(const SiteKey& key, uint32_t site, uint32_t row) {
    const auto [position, is_new] = site_positions_.try_emplace(key, sites_.size());
    if (is_new) {
        sites_.push_back({.key = key, .figures = {}, .parts = {}});
        sites_.back().figures.site = site;
        sites_.back().figures.row = row;
        sites_.back().figures.is_mapping = key.is_mapping;
    }
    return sites_[position->second];
}

ProcessFigures& ScopeDraft::process(const ScopePlace& place) {
    const auto [position, is_new] = process_positions_.try_emplace(place.process, processes_.size());
    if (is_new) {
        processes_.emplace_back();
        processes_.back().number = place.process;
        processes_.back().pid = place.pid;
    }
    return processes_[position->second];
}

void ScopeDraft::add_space(const ScopePlace& place, const SpaceReading& reading) {
    accuracy_ += accuracy_of(*reading.space);
    accuracy_.unknown_frees += reading.mappings.unknown_unmaps;
    mappings_ += reading.mappings;
    process(place).mappings_live_bytes += reading.mappings.live_bytes;
}

void ScopeDraft::add_site(const ScopePlace& place, const SiteReading& reading) {
    DraftSite& draft = site(reading.key, reading.site->index, reading.site->row);
    draft.figures.flags |= reading.site->flags;
    draft.figures.totals += reading.totals;
    draft.figures.live_bytes += reading.live_bytes();
    draft.figures.live_blocks += reading.live_blocks();
    if (reading.is_living) draft.figures.parts += reading.parts;
    draft.parts.push_back({&reading, place.pid});
    if ((reading.site->flags & cut_short) != 0) accuracy_.stacks_truncated += reading.totals.allocations;
    if (reading.key.is_mapping) return;
    ProcessFigures& owner = process(place);
    owner.totals += reading.totals;
    owner.live_bytes += reading.live_bytes();
    owner.live_blocks += reading.live_blocks();
    owner.ended_bytes += reading.totals.live_bytes() - reading.live_bytes();
    owner.ended_blocks += reading.totals.live_blocks() - reading.live_blocks();
}

/// What an inheritor alone still holds counts as mapped by it.
void ScopeDraft::correct(const MappingCorrection& correction, const SiteKey& key) {
    const uint64_t more_bytes = correction.held_bytes - correction.twice_bytes;
    const uint64_t more_mappings = correction.held_count - correction.twice_count;
    SiteFigures& figures = site(key, correction.site, key.row).figures;
    figures.totals.allocated_bytes += more_bytes;
    figures.totals.allocations += more_mappings;
    figures.live_bytes += more_bytes;
    figures.live_blocks += more_mappings;
    (figures.parts += correction.held) -= correction.twice;
    (mappings_.parts += correction.held) -= correction.twice;
    mappings_.mapped_bytes += more_bytes;
    mappings_.live_bytes += more_bytes;
    mappings_.live_count += more_mappings;
}

void ScopeDraft::add_ended(const EndedFigures& ended) {
    for (const auto& [key, left] : ended.sites) {
        DraftSite& draft = site(key, left.site, key.row);
        draft.figures.flags |= left.flags;
        draft.figures.totals += left.totals;
    }
    accuracy_ += ended.accuracy;
    mappings_ += ended.mappings;
    for (const auto& [number, left] : ended.of_living)
        add_left(process({.scope = 0, .process = number, .pid = left.pid}), left);
    for (const ProcessFigures& row : ended.in_table)
        if (process_positions_.try_emplace(row.number, processes_.size()).second) processes_.push_back(row);
}

void ScopeDraft::end_into(EndedFigures& ended, const KeepStack& keep_stack,
                          const std::function<bool(const ProcessFigures& process)>& lives_on) const {
    ended.accuracy += accuracy_;
    ended.mappings += mappings_;
    for (const DraftSite& draft : sites_) {
        const KeptSite kept = keep_stack(draft.figures.site);
        const auto left = ended.sites.try_emplace({kept.stack, draft.key.row, draft.key.is_mapping}).first;
        left->second.site = kept.site;
        left->second.flags |= draft.figures.flags;
        SiteTotals totals = draft.figures.totals;
        if (draft.key.is_mapping)
            totals = {totals.allocated_bytes, totals.allocations, totals.allocated_bytes, totals.allocations};
        left->second.totals += totals;
    }
    for (ProcessFigures process : processes_) {
        const auto before = ended.of_living.find(process.number);
        if (before != ended.of_living.end()) add_left(process, before->second);
        process.has_ended = !lives_on(process);
        if (!process.has_ended) {
            ended.of_living[process.number] = process;
            continue;
        }
        if (before != ended.of_living.end()) ended.of_living.erase(before);
        ended.in_table.push_back(process);
    }
    if (ended.in_table.size() > 2 * most_ended_rows) ended.fold(most_ended_rows);
}

uint64_t ScopeDraft::heap_live_bytes() const {
    uint64_t live_bytes = 0;
    for (const DraftSite& draft : sites_)
        if (!draft.key.is_mapping) live_bytes += draft.figures.live_bytes;
    return live_bytes;
}

}  // namespace memtrace
