// Reading the kernel side's tables while it writes them.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <algorithm>
#include <optional>

#include "base/clock.hpp"
#include "kernel/read_entries.hpp"
#include "kernel/session.hpp"
#include "kernel/tables.hpp"
#include "memtrace.skel.h"
#include "memtrace/sampling_abi.h"

namespace memtrace {
namespace {

Block block_of(uint64_t key, const mt_block& value) {
    return {.address = key & address_mask,
            .size_bytes = value.size_and_mean & MT_BLOCK_SIZE_MASK,
            .birth_ns = value.birth_ns,
            .site = value.site,
            .owner = static_cast<uint32_t>(key >> owner_shift),
            .forks = value.forks,
            .sampling_mean_bytes = mt_mean_of(value.size_and_mean >> MT_BLOCK_SIZE_BITS)};
}

/// The block in a slot; none when it is free, being written, or changed while it was read.
std::optional<Block> read_slot(const mt_block& slot) {
    const uint64_t key = load(slot.key);
    if (key == 0 || key == MT_BLOCK_BUSY) return std::nullopt;
    const mt_block copy{.key = key,
                        .size_and_mean = load(slot.size_and_mean),
                        .birth_ns = load(slot.birth_ns),
                        .site = load(slot.site),
                        .forks = load(slot.forks)};
    if (load(slot.key) != key) return std::nullopt;
    return block_of(key, copy);
}

uint64_t rounded_shift(uint64_t value, uint32_t shift) {
    return (value + (uint64_t{1} << (shift - 1))) >> shift;
}

/// The sums of a session that samples are fractions.
void make_whole(SiteTotals& totals) {
    totals.allocated_bytes = rounded_shift(totals.allocated_bytes, MT_SAMPLED_BYTES_SHIFT);
    totals.freed_bytes = rounded_shift(totals.freed_bytes, MT_SAMPLED_BYTES_SHIFT);
    totals.allocations = rounded_shift(totals.allocations, MT_SAMPLED_BLOCKS_SHIFT);
    totals.frees = rounded_shift(totals.frees, MT_SAMPLED_BLOCKS_SHIFT);
}

std::optional<Site> read_site(uint32_t index, const mt_site& value, bool is_sampled) {
    const uint32_t flags = load(value.flags);
    if (!(flags & MT_SITE_READY)) return std::nullopt;
    Site site{.index = index, .owner = load(value.key.owner), .row = value.key.row, .flags = flags, .totals = {}};
    site.kernel_hash = load(value.key.stack_hash[0]);
    // The freed figures first: whatever was freed then had been allocated, so live is never negative.
    site.totals.frees = load(value.frees);
    site.totals.freed_bytes = load(value.freed_bytes);
    site.totals.allocated_bytes = load(value.allocated_bytes);
    site.totals.allocations = load(value.allocations);
    if (is_sampled) make_whole(site.totals);
    return site;
}

}  // namespace

Snapshot Session::read_snapshot() const {
    Snapshot snapshot;
    // First: of one that has ended, the sums that follow are the last ones.
    append_address_spaces(snapshot);
    append_sites(snapshot);
    append_blocks(snapshot);
    append_overflow_blocks(snapshot);
    append_inheritance(snapshot);
    append_typed_objects(snapshot);
    append_collections(snapshot);
    snapshot.is_sampled = skeleton_->rodata->samples != 0;
    // Taken last: no block of the snapshot is younger than the snapshot.
    snapshot.time_ns = monotonic_now_ns();
    return snapshot;
}

void Session::append_sites(Snapshot& snapshot) const {
    const std::span<mt_site> values = tables_->sites.values();
    const uint32_t max_sites = skeleton_->rodata->max_sites;
    const uint32_t used = std::min(load(skeleton_->bss->sites_given) + 1, max_sites);
    const uint32_t owners = std::min<uint32_t>(load(skeleton_->bss->owners_given) + 1, MT_MAX_OWNERS);
    const bool is_sampled = skeleton_->rodata->samples != 0;
    snapshot.sites.reserve(used);
    for (uint32_t index = 1; index < used; ++index)
        if (auto site = read_site(index, values[index], is_sampled)) snapshot.sites.push_back(*site);
    for (uint32_t index = max_sites; index < max_sites + owners; ++index)
        if (auto site = read_site(index, values[index], is_sampled); site && site->totals.allocations > 0)
            snapshot.sites.push_back(*site);
}

void Session::append_address_spaces(Snapshot& snapshot) const {
    const std::span<mt_owner> values = tables_->owners.values();
    const uint32_t owners = std::min<uint32_t>(load(skeleton_->bss->owners_given) + 1, MT_MAX_OWNERS);
    for (uint32_t serial = 1; serial < owners; ++serial) {
        const mt_owner& value = values[serial];
        const uint32_t tgid = load(value.tgid);
        if (tgid == 0) continue;
        AddressSpace space{.owner = serial,
                           .pid = static_cast<pid_t>(tgid),
                           .first_seen_ns = value.first_seen_ns,
                           .ended_ns = load(value.ended_ns),
                           .exit_code = load(value.exit_code),
                           .parent_owner = load(value.parent_owner),
                           .fork_number = load(value.fork_number),
                           .forked_ns = load(value.forked_ns),
                           .counters = {}};
        for (size_t counter = 0; counter < MT_COUNTERS; ++counter)
            space.counters[counter] = load(value.counters[counter]);
        snapshot.address_spaces.push_back(space);
    }
}

void Session::append_blocks(Snapshot& snapshot) const {
    for (const mt_block& slot : tables_->live_blocks.values())
        if (auto block = read_slot(slot)) snapshot.blocks.push_back(*block);
}

void Session::append_overflow_blocks(Snapshot& snapshot) const {
    if (load(skeleton_->bss->overflow_blocks) <= 0) return;
    for_each_entry<uint64_t, mt_block>(
        bpf_map__fd(skeleton_->maps.live_overflow),
        [&](uint64_t key, const mt_block& value) { snapshot.blocks.push_back(block_of(key, value)); });
}

/// After the blocks: a ghost is there before its block is gone.
void Session::append_inheritance(Snapshot& snapshot) const {
    if (load(skeleton_->bss->forks_followed) == 0) return;
    for_each_entry<mt_ghost_key, mt_ghost>(bpf_map__fd(skeleton_->maps.ghosts),
                                           [&](const mt_ghost_key& key, const mt_ghost& value) {
                                               if (key.forks == MT_GHOST_OF_MANY) return;
                                               const mt_block block{.key = key.block,
                                                                    .size_and_mean = value.size_and_mean,
                                                                    .birth_ns = value.birth_ns,
                                                                    .site = value.site,
                                                                    .forks = value.forks};
                                               snapshot.ghosts.push_back({block_of(key.block, block), key.forks});
                                           });
    for_each_entry<uint64_t, mt_inherited_free>(
        bpf_map__fd(skeleton_->maps.inherited_frees), [&](uint64_t key, const mt_inherited_free& value) {
            snapshot.inherited_frees.push_back(
                {static_cast<uint32_t>(key >> owner_shift), key & address_mask, value.forks});
        });
}

}  // namespace memtrace
