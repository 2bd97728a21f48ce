// How far the figures can be trusted: the kernel side's counters under the names of the contract, and for each loss why
// it happened and which option prevents it. Pure; uses include/ and snapshot.hpp only.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "heap/snapshot.hpp"

namespace memtrace {

/// One way in which something was lost: "1,024 blocks not recorded (live table full): raise --max-live-blocks".
struct Loss {
    uint64_t count = 0;
    std::string_view thing;    // "block": one of `count`
    std::string_view state;    // "not recorded"
    std::string_view reason;   // "live table full"
    std::string_view way_out;  // "raise --max-live-blocks"; empty where no option helps
};

/// The accuracy figures of one process. A loss makes `is_complete()` false; the rest informs.
struct Accuracy {
    uint64_t blocks_live_table_full = 0;
    uint64_t blocks_calls_full = 0;
    uint64_t blocks_quota = 0;  // its process had as many as one may have
    uint64_t stacks_sites_full = 0;
    uint64_t stacks_ring_full = 0;
    uint64_t stacks_quota = 0;
    uint64_t events_ring_full = 0;
    uint64_t events_mappings_lost = 0;   // the intervals were put right from /proc/PID/maps
    uint64_t events_side_band_lost = 0;  // records of the side band that the user side missed
    uint64_t returns_missed = 0;
    uint64_t frees_missed = 0;
    uint64_t reallocs_unresolved = 0;
    uint64_t inherited_lost = 0;

    uint64_t unknown_frees = 0;  // frees and unmaps of what was there before the attach
    uint64_t calls_abandoned = 0;
    uint64_t calls_suppressed = 0;
    uint64_t stacks_truncated = 0;
    uint64_t blocks_filtered = 0;
    uint64_t children_not_seen = 0;   // by vfork: they share the memory, and their calls meet no probe
    uint64_t types_not_recorded = 0;  // objects that are in no figure of their type
    bool is_size_filtered = false;  // -z or -Z: what was not recorded is freed unknown, so `unknown_frees` says nothing

    bool is_sampled = false;           // ... and so it is where blocks were sampled: the figures are estimates
    uint32_t sampling_mean_bytes = 0;  // in force now

    bool knows_unknown_frees() const { return !is_size_filtered && !is_sampled; }
    uint64_t blocks_not_recorded() const { return blocks_live_table_full + blocks_calls_full + blocks_quota; }
    uint64_t stacks_not_recorded() const { return stacks_sites_full + stacks_ring_full + stacks_quota; }
    uint64_t events_lost() const { return events_ring_full + events_mappings_lost + events_side_band_lost; }
    bool is_complete() const;
    /// Every loss above 0, the worst (blocks) first; empty when complete.
    std::vector<Loss> losses() const;

    Accuracy& operator+=(const Accuracy& other);
};

/// The counters of one address space under their names.
Accuracy accuracy_of(const AddressSpace& address_space);

}  // namespace memtrace
