#include "heap/accuracy.hpp"

#include <algorithm>

namespace memtrace {

bool Accuracy::is_complete() const {
    return losses().empty();
}

std::vector<Loss> Accuracy::losses() const {
    constexpr std::string_view ring = "raise --ring-size";
    const Loss all[] = {
        {blocks_live_table_full, "block", "not recorded", "live table full", "raise --max-live-blocks"},
        {blocks_quota, "block", "not recorded", "its process's share of the live table full",
         "raise --max-process-blocks"},
        {blocks_calls_full, "block", "not recorded", "too many allocator calls in flight on a thread", ""},
        {returns_missed, "allocation", "not recorded", "return not reported by the kernel", ""},
        {frees_missed, "free", "not recorded", "a block was found alive where a new one begins", ""},
        {reallocs_unresolved, "realloc", "unresolved", "return never came", ""},
        {stacks_sites_full, "block", "recorded without a stack", "table of call sites full", "raise --max-sites"},
        {stacks_quota, "block", "recorded without a stack", "its process's share of the call sites full",
         "raise --max-process-sites"},
        {stacks_ring_full, "block", "recorded without a stack", "ring buffer full", ring},
        {inherited_lost, "inherited block", "not followed", "table full, or too many forks between",
         "raise --max-live-blocks"},
        {events_ring_full, "event", "lost", "ring buffer full", ring},
        {events_mappings_lost, "mapping event", "lost",
         "ring buffer full; what is mapped was read again, whose it is may be unknown", ring},
        {events_side_band_lost, "event", "lost", "kernel's side band full", ring},
    };
    std::vector<Loss> losses;
    for (const Loss& loss : all)
        if (loss.count > 0) losses.push_back(loss);
    return losses;
}

Accuracy& Accuracy::operator+=(const Accuracy& other) {
    blocks_live_table_full += other.blocks_live_table_full;
    blocks_calls_full += other.blocks_calls_full;
    blocks_quota += other.blocks_quota;
    stacks_quota += other.stacks_quota;
    inherited_lost += other.inherited_lost;
    stacks_sites_full += other.stacks_sites_full;
    stacks_ring_full += other.stacks_ring_full;
    events_ring_full += other.events_ring_full;
    events_mappings_lost += other.events_mappings_lost;
    events_side_band_lost += other.events_side_band_lost;
    returns_missed += other.returns_missed;
    frees_missed += other.frees_missed;
    reallocs_unresolved += other.reallocs_unresolved;
    unknown_frees += other.unknown_frees;
    calls_abandoned += other.calls_abandoned;
    calls_suppressed += other.calls_suppressed;
    stacks_truncated += other.stacks_truncated;
    blocks_filtered += other.blocks_filtered;
    children_not_seen += other.children_not_seen;
    types_not_recorded += other.types_not_recorded;
    is_size_filtered = is_size_filtered || other.is_size_filtered;
    is_sampled = is_sampled || other.is_sampled;
    sampling_mean_bytes = std::max(sampling_mean_bytes, other.sampling_mean_bytes);
    return *this;
}

Accuracy accuracy_of(const AddressSpace& address_space) {
    const auto& counters = address_space.counters;
    Accuracy accuracy;
    accuracy.blocks_live_table_full = counters[MT_COUNT_BLOCKS_LIVE_TABLE_FULL];
    accuracy.blocks_calls_full = counters[MT_COUNT_BLOCKS_CALLS_FULL];
    accuracy.blocks_quota = counters[MT_COUNT_BLOCKS_QUOTA];
    accuracy.stacks_quota = counters[MT_COUNT_STACKS_QUOTA];
    accuracy.inherited_lost = counters[MT_COUNT_INHERITED_LOST];
    accuracy.stacks_sites_full = counters[MT_COUNT_STACKS_SITES_FULL];
    accuracy.stacks_ring_full = counters[MT_COUNT_STACKS_RING_FULL];
    accuracy.events_ring_full = counters[MT_COUNT_EVENTS_RING_FULL];
    accuracy.events_mappings_lost = counters[MT_COUNT_MAPPINGS_RING_FULL];
    accuracy.returns_missed = counters[MT_COUNT_RETURNS_MISSED];
    accuracy.frees_missed = counters[MT_COUNT_FREES_MISSED];
    accuracy.reallocs_unresolved = counters[MT_COUNT_REALLOCS_UNRESOLVED];
    accuracy.unknown_frees = counters[MT_COUNT_UNKNOWN_FREES];
    accuracy.calls_abandoned = counters[MT_COUNT_CALLS_ABANDONED];
    accuracy.calls_suppressed = counters[MT_COUNT_CALLS_SUPPRESSED];
    accuracy.stacks_truncated = counters[MT_COUNT_STACKS_TRUNCATED];
    accuracy.blocks_filtered = counters[MT_COUNT_BLOCKS_FILTERED];
    accuracy.children_not_seen = counters[MT_COUNT_CHILDREN_NOT_SEEN];
    accuracy.types_not_recorded = counters[MT_COUNT_TYPES_FULL];
    return accuracy;
}

}  // namespace memtrace
