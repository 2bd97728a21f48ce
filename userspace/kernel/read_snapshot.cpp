// Reading the kernel side's tables while it writes them.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <optional>
#include <unordered_set>

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

/// The block in a slot of a bucket; none when it is free, being written, or changed while it was read.
std::optional<Block> read_slot(const mt_bucket& bucket, size_t slot) {
    const uint64_t key = load(bucket.keys[slot]);
    if (key <= MT_BLOCK_BUSY) return std::nullopt;
    const mt_block& block = bucket.blocks[slot];
    const mt_block copy{.size_and_mean = load(block.size_and_mean),
                        .birth_ns = load(block.birth_ns),
                        .site = load(block.site),
                        .forks = load(block.forks)};
    if (load(bucket.keys[slot]) != key) return std::nullopt;
    return block_of(key, copy);
}

/// Few enough for the processor's cache.
constexpr size_t buckets_at_once = 256;

/// A branch for each slot would be mispredicted for every other one: each is written, and kept when it is a block.
void append_births(std::span<const mt_bucket> buckets, LiveBlocks& blocks) {
    std::array<uint64_t, buckets_at_once * MT_BUCKET_SLOTS> births_ns;
    std::array<uint32_t, buckets_at_once * MT_BUCKET_SLOTS> sites;
    size_t count = 0;
    for (const mt_bucket& bucket : buckets)
        for (size_t slot = 0; slot < MT_BUCKET_SLOTS; ++slot) {
            const uint64_t key = load(bucket.keys[slot]);
            births_ns[count] = load(bucket.blocks[slot].birth_ns);
            sites[count] = load(bucket.blocks[slot].site);
            count += static_cast<size_t>(key > MT_BLOCK_BUSY) & static_cast<size_t>(load(bucket.keys[slot]) == key);
        }
    blocks.append(std::span(births_ns).first(count), std::span(sites).first(count));
}

/// `buckets_at_once` at most.
void append_buckets(std::span<const mt_bucket> buckets, BlockDetail detail, LiveBlocks& blocks) {
    if (detail == BlockDetail::births) append_births(buckets, blocks);
    if (detail != BlockDetail::whole) return;
    for (const mt_bucket& bucket : buckets)
        for (size_t slot = 0; slot < MT_BUCKET_SLOTS; ++slot)
            if (const auto block = read_slot(bucket, slot)) blocks.push_back(*block);
}

/// A block is in a bucket by a hash, so that buckets are as good as drawn by lot.
void append_landmarks(std::span<const mt_bucket> buckets, std::vector<Block>& landmarks) {
    constexpr size_t drawn_buckets = 64;
    for (size_t index = 0; index < buckets.size(); ++index)
        for (size_t slot = 0; slot < MT_BUCKET_SLOTS; ++slot) {
            const uint64_t size_bytes = load(buckets[index].blocks[slot].size_and_mean) & MT_BLOCK_SIZE_MASK;
            if (size_bytes < large_block_bytes && index % drawn_buckets != 0) continue;
            if (const auto block = read_slot(buckets[index], slot)) landmarks.push_back(*block);
        }
}

/// Which blocks Snapshot::inheritable has.
class Inheritable {
  public:
    Inheritable(const Snapshot& snapshot, BlockDetail detail) : are_noted_only_(detail == BlockDetail::none) {
        for (const InheritedFree& freed : snapshot.inherited_frees)
            noted_.insert(freed.address);
        if (are_noted_only_ && noted_.empty()) return;
        for (const AddressSpace& space : snapshot.address_spaces)
            if (space.parent_owner != 0) {
                is_parent_[space.parent_owner % MT_MAX_OWNERS] = true;
                is_none_ = false;
            }
    }
    bool is_none() const { return is_none_; }
    bool has(uint64_t key) const {
        return key > MT_BLOCK_BUSY && is_parent_[(key >> owner_shift) % MT_MAX_OWNERS] &&
               (!are_noted_only_ || noted_.contains(key & address_mask));
    }
    void append_buckets(std::span<const mt_bucket> buckets, std::vector<Block>& blocks) const {
        for (const mt_bucket& bucket : buckets)
            for (size_t slot = 0; slot < MT_BUCKET_SLOTS; ++slot)
                if (has(load(bucket.keys[slot])))
                    if (const auto block = read_slot(bucket, slot)) blocks.push_back(*block);
    }

  private:
    bool are_noted_only_;
    bool is_none_ = true;
    std::bitset<MT_MAX_OWNERS> is_parent_;
    std::unordered_set<uint64_t> noted_;
};

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

Snapshot Session::read_snapshot(BlockDetail detail) const {
    Snapshot snapshot;
    snapshot.is_sampled = skeleton_->rodata->samples != 0;
    // First: of one that has ended, the sums that follow are the last ones.
    append_address_spaces(snapshot);
    append_sites(snapshot);
    append_inherited_frees(snapshot);
    append_blocks(snapshot, detail);
    append_ghosts(snapshot);
    append_typed_objects(snapshot);
    append_collections(snapshot);
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

void Session::append_blocks(Snapshot& snapshot, BlockDetail detail) const {
    // What a sampled block stands for is told by all of it.
    if (snapshot.is_sampled && detail == BlockDetail::births) detail = BlockDetail::whole;
    const Inheritable inheritable(snapshot, detail);
    if (detail == BlockDetail::none && inheritable.is_none()) return;
    if (detail != BlockDetail::none) snapshot.blocks.reserve(expected_blocks(snapshot), detail == BlockDetail::whole);
    std::span<const mt_bucket> buckets = tables_->live_blocks.values();
    while (!buckets.empty()) {
        const auto some = buckets.first(std::min(buckets_at_once, buckets.size()));
        append_buckets(some, detail, snapshot.blocks);
        if (detail != BlockDetail::none) append_landmarks(some, snapshot.landmarks);
        if (!inheritable.is_none()) inheritable.append_buckets(some, snapshot.inheritable);
        buckets = buckets.subspan(some.size());
    }
    if (load(skeleton_->bss->overflow_blocks) <= 0) return;
    for_each_entry<uint64_t, mt_block>(bpf_map__fd(skeleton_->maps.live_overflow),
                                       [&](uint64_t key, const mt_block& value) {
                                           if (detail == BlockDetail::whole)
                                               snapshot.blocks.push_back(block_of(key, value));
                                           if (detail == BlockDetail::births)
                                               snapshot.blocks.append({&value.birth_ns, 1}, {&value.site, 1});
                                           if (detail != BlockDetail::none)
                                               snapshot.landmarks.push_back(block_of(key, value));
                                           if (inheritable.has(key))
                                               snapshot.inheritable.push_back(block_of(key, value));
                                       });
}

/// At least, but for what comes meanwhile.
uint64_t Session::expected_blocks(const Snapshot& snapshot) const {
    uint64_t expected = 0;
    for (const AddressSpace& space : snapshot.address_spaces)
        expected += load(tables_->owners.values()[space.owner].live_blocks);
    return std::min<uint64_t>(expected + expected / 64, tables_->live_blocks.values().size() * MT_BUCKET_SLOTS);
}

/// Before the blocks, of which it may say that they alone are wanted.
void Session::append_inherited_frees(Snapshot& snapshot) const {
    if (load(skeleton_->bss->forks_followed) == 0) return;
    for_each_entry<uint64_t, mt_inherited_free>(
        bpf_map__fd(skeleton_->maps.inherited_frees), [&](uint64_t key, const mt_inherited_free& value) {
            snapshot.inherited_frees.push_back(
                {static_cast<uint32_t>(key >> owner_shift), key & address_mask, value.forks});
        });
}

/// After the blocks: a ghost is there before its block is gone.
void Session::append_ghosts(Snapshot& snapshot) const {
    if (load(skeleton_->bss->forks_followed) == 0) return;
    for_each_entry<mt_ghost_key, mt_block>(bpf_map__fd(skeleton_->maps.ghosts),
                                           [&](const mt_ghost_key& key, const mt_block& value) {
                                               if (key.forks == MT_GHOST_OF_MANY) return;
                                               snapshot.ghosts.push_back({block_of(key.block, value), key.forks});
                                           });
}

}  // namespace memtrace
