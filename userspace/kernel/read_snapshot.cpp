// Reading the kernel side's tables while it writes them.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <optional>

#include "kernel/session.hpp"
#include "kernel/tables.hpp"
#include "memtrace.skel.h"

namespace memtrace {
namespace {

constexpr uint64_t address_mask = 0xffffffffffff;
constexpr int owner_shift = 48;

uint64_t monotonic_now_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

Block block_of(uint64_t key, const mt_block& value) {
    return {.address = key & address_mask,
            .size_bytes = value.size_bytes,
            .birth_ns = value.birth_ns,
            .site = value.site,
            .owner = static_cast<uint32_t>(key >> owner_shift)};
}

/// The block in a slot; none when it is free, being written, or changed while it was read.
std::optional<Block> read_slot(const mt_block& slot) {
    const uint64_t key = load(slot.key);
    if (key == 0 || key == MT_BLOCK_BUSY) return std::nullopt;
    const mt_block copy{.key = key,
                        .size_bytes = load(slot.size_bytes),
                        .birth_ns = load(slot.birth_ns),
                        .site = load(slot.site),
                        .reserved = 0};
    if (load(slot.key) != key) return std::nullopt;
    return block_of(key, copy);
}

std::optional<Site> read_site(uint32_t index, const mt_site& value) {
    const uint32_t flags = load(value.flags);
    if (!(flags & MT_SITE_READY)) return std::nullopt;
    Site site{.index = index, .owner = value.key.owner, .row = value.key.row, .flags = flags, .totals = {}};
    // The freed figures first: whatever was freed then had been allocated, so live is never negative.
    site.totals.frees = load(value.frees);
    site.totals.freed_bytes = load(value.freed_bytes);
    site.totals.allocated_bytes = load(value.allocated_bytes);
    site.totals.allocations = load(value.allocations);
    return site;
}

}  // namespace

Snapshot Session::read_snapshot() const {
    Snapshot snapshot;
    append_sites(snapshot);
    append_blocks(snapshot);
    append_overflow_blocks(snapshot);
    append_address_spaces(snapshot);
    // Taken last: no block of the snapshot is younger than the snapshot.
    snapshot.time_ns = monotonic_now_ns();
    return snapshot;
}

void Session::append_sites(Snapshot& snapshot) const {
    const std::span<mt_site> values = tables_->sites.values();
    const uint32_t max_sites = skeleton_->rodata->max_sites;
    const uint32_t used = std::min(load(skeleton_->bss->sites_given) + 1, max_sites);
    const uint32_t owners = std::min<uint32_t>(load(skeleton_->bss->owners_given) + 1, MT_MAX_OWNERS);
    snapshot.sites.reserve(used);
    for (uint32_t index = 1; index < used; ++index)
        if (auto site = read_site(index, values[index])) snapshot.sites.push_back(*site);
    for (uint32_t index = max_sites; index < max_sites + owners; ++index)
        if (auto site = read_site(index, values[index]); site && site->totals.allocations > 0)
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
    constexpr uint32_t batch_size = 1024;
    std::array<uint64_t, batch_size> keys;
    std::array<mt_block, batch_size> values;
    uint64_t position = 0;
    void* from = nullptr;
    const int map_fd = bpf_map__fd(skeleton_->maps.live_overflow);
    while (true) {
        uint32_t count = batch_size;
        const int error = bpf_map_lookup_batch(map_fd, from, &position, keys.data(), values.data(), &count, nullptr);
        for (uint32_t index = 0; index < count; ++index)
            snapshot.blocks.push_back(block_of(keys[index], values[index]));
        if (error != 0) return;
        from = &position;
    }
}

void Session::release_blocks(uint32_t owner) {
    for (mt_block& slot : tables_->live_blocks.values()) {
        uint64_t key = load(slot.key);
        if (key >> owner_shift != owner || key == MT_BLOCK_BUSY) continue;
        __atomic_compare_exchange_n(&slot.key, &key, uint64_t{0}, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    }
    Snapshot overflow;
    append_overflow_blocks(overflow);
    for (const Block& block : overflow.blocks) {
        if (block.owner != owner) continue;
        const uint64_t key = MT_BLOCK_KEY(block.owner, block.address);
        if (bpf_map__delete_elem(skeleton_->maps.live_overflow, &key, sizeof key, 0) == 0)
            __atomic_fetch_sub(&skeleton_->bss->overflow_blocks, 1, __ATOMIC_ACQ_REL);
    }
}

}  // namespace memtrace
