// What a garbage collector has given back leaves the live table while the kernel side goes on writing it.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <vector>

#include "kernel/read_entries.hpp"
#include "kernel/session.hpp"
#include "kernel/tables.hpp"
#include "memtrace.skel.h"
#include "memtrace/sampling_abi.h"

namespace memtrace {

/// The map first, then the owner that is there: a new owner is found before it looks into the map.
void Session::set_collector(pid_t pid, const mt_collector& collector) {
    bpf_map__update_elem(skeleton_->maps.collectors, &pid, sizeof pid, &collector, sizeof collector, BPF_ANY);
    mt_target target{};
    const int error = bpf_map__lookup_elem(skeleton_->maps.targets, &pid, sizeof pid, &target, sizeof target, 0);
    if (error != 0 || target.owner == 0 || target.owner >= MT_MAX_OWNERS) return;
    mt_owner& owner = tables_->owners.values()[target.owner];
    __atomic_store_n(&owner.type_source, collector.type_source, __ATOMIC_RELEASE);
    __atomic_store_n(&owner.collection_counter, collector.collection_counter, __ATOMIC_RELEASE);
}

/// As the kernel side counts a free (bpf/ledger.h, add_free).
void Session::release_collected(std::span<const Block> blocks) {
    const std::span<mt_site> sites = tables_->sites.values();
    const bool is_sampled = skeleton_->rodata->samples != 0;
    for (const Block& block : blocks) {
        if (block.site >= sites.size() || block.owner >= MT_MAX_OWNERS) continue;
        leave_ghost(block);
        if (!release_slot(block) && !release_overflow_block(block)) continue;
        const uint64_t weight = mt_sampling_weight(block.size_bytes, block.sampling_mean_bytes);
        const uint64_t freed_bytes = is_sampled ? mt_sampled_bytes(block.size_bytes, weight) : block.size_bytes;
        const uint64_t frees = is_sampled ? mt_sampled_blocks(weight) : 1;
        __atomic_fetch_sub(&tables_->owners.values()[block.owner].live_blocks, mt_u64{1}, __ATOMIC_ACQ_REL);
        __atomic_fetch_add(&sites[block.site].freed_bytes, freed_bytes, __ATOMIC_ACQ_REL);
        __atomic_fetch_add(&sites[block.site].frees, frees, __ATOMIC_ACQ_REL);
    }
}

/// As the kernel side does at a free (bpf/inheritance.h): a child that was forked while the block lived has it still.
void Session::leave_ghost(const Block& block) {
    mt_owner& owner = tables_->owners.values()[block.owner];
    const uint32_t forks = load(owner.forks);
    if (load(owner.holders) == 0 || block.forks >= forks) return;
    const uint64_t code = skeleton_->rodata->samples != 0 ? mt_mean_code(block.sampling_mean_bytes) : 0;
    const mt_block ghost{.size_and_mean = block.size_bytes | code << MT_BLOCK_SIZE_BITS,
                         .birth_ns = block.birth_ns,
                         .site = block.site,
                         .forks = block.forks};
    mt_ghost_key key{.block = MT_BLOCK_KEY(block.owner, block.address), .forks = forks, .reserved = 0};
    const int map_fd = bpf_map__fd(skeleton_->maps.ghosts);
    int error = bpf_map_update_elem(map_fd, &key, &ghost, BPF_ANY);
    key.forks = MT_GHOST_OF_MANY;
    if (error == 0 && forks - block.forks > MT_GHOST_TRIES) error = bpf_map_update_elem(map_fd, &key, &ghost, BPF_ANY);
    if (error != 0) __atomic_fetch_add(&owner.counters[MT_COUNT_INHERITED_LOST], mt_u64{1}, __ATOMIC_ACQ_REL);
}

/// Busy while it is looked at again: the same address may have become another block since the snapshot was read.
bool Session::release_slot(const Block& block) {
    const std::span<mt_bucket> buckets = tables_->live_blocks.values();
    const uint64_t key = MT_BLOCK_KEY(block.owner, block.address);
    mt_bucket& bucket = buckets[MT_BUCKET_OF(key) & (buckets.size() - 1)];
    for (uint32_t slot = 0; slot < MT_BUCKET_SLOTS; ++slot) {
        mt_u64& key_there = bucket.keys[slot];
        const mt_u64& birth_ns = bucket.blocks[slot].birth_ns;
        uint64_t expected = key;
        if (load(key_there) != key || load(birth_ns) != block.birth_ns) continue;
        if (!__atomic_compare_exchange_n(&key_there, &expected, uint64_t{MT_BLOCK_BUSY}, false, __ATOMIC_ACQ_REL,
                                         __ATOMIC_RELAXED))
            continue;
        const bool is_same = load(birth_ns) == block.birth_ns;
        __atomic_store_n(&key_there, is_same ? uint64_t{0} : key, __ATOMIC_RELEASE);
        if (is_same) return true;
    }
    return false;
}

bool Session::release_overflow_block(const Block& block) {
    if (load(skeleton_->bss->overflow_blocks) <= 0) return false;
    const int map_fd = bpf_map__fd(skeleton_->maps.live_overflow);
    const uint64_t key = MT_BLOCK_KEY(block.owner, block.address);
    mt_block value{};
    if (bpf_map_lookup_elem(map_fd, &key, &value) != 0 || value.birth_ns != block.birth_ns) return false;
    if (bpf_map_lookup_and_delete_elem(map_fd, &key, &value) != 0) return false;
    if (value.birth_ns == block.birth_ns) {
        __atomic_fetch_sub(&skeleton_->bss->overflow_blocks, 1, __ATOMIC_ACQ_REL);
        return true;
    }
    bpf_map_update_elem(map_fd, &key, &value, BPF_NOEXIST);
    return false;
}

void Session::append_typed_objects(Snapshot& snapshot) const {
    for_each_entry<mt_typed_site_key, uint64_t>(
        bpf_map__fd(skeleton_->maps.typed_sites), [&](const mt_typed_site_key& key, uint64_t allocations) {
            snapshot.typed_objects.push_back(
                {.site = key.site, .type = key.type, .size_bytes = key.size_bytes, .allocations = allocations});
        });
}

/// After the blocks: a collection that no block of the snapshot is behind may then be told from one that some are. The
/// kernel side writes the time last.
void Session::append_collections(Snapshot& snapshot) const {
    for (AddressSpace& space : snapshot.address_spaces) {
        const mt_owner& owner = tables_->owners.values()[space.owner];
        space.collected_ns = load(owner.collected_ns);
        space.collections = load(owner.collections);
    }
}

/// Before the sites are given again.
void Session::release_typed_objects(const std::vector<bool>& sites) {
    const int map_fd = bpf_map__fd(skeleton_->maps.typed_sites);
    std::vector<mt_typed_site_key> keys;
    for_each_entry<mt_typed_site_key, uint64_t>(map_fd, [&](const mt_typed_site_key& key, uint64_t) {
        if (key.site < sites.size() && sites[key.site]) keys.push_back(key);
    });
    for (const mt_typed_site_key& key : keys)
        bpf_map_delete_elem(map_fd, &key);
}

}  // namespace memtrace
