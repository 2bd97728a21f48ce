// What an address space that has ended gives back: its room in every table, and its number.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <span>

#include "base/clock.hpp"
#include "kernel/read_entries.hpp"
#include "kernel/session.hpp"
#include "kernel/tables.hpp"
#include "kernel/unwind_tables.hpp"
#include "memtrace.skel.h"

namespace memtrace {
namespace {

void push(int queue_fd, uint32_t number) {
    bpf_map_update_elem(queue_fd, nullptr, &number, BPF_ANY);
}

/// The entries of a table that `is_released` says so of.
template <typename Key, typename Value, typename Predicate>
std::vector<Key> entries_of(int map_fd, const Predicate& is_released) {
    std::vector<Key> keys;
    for_each_entry<Key, Value>(map_fd, [&](const Key& key, const Value& value) {
        if (is_released(key, value)) keys.push_back(key);
    });
    return keys;
}

}  // namespace

std::vector<uint32_t> Session::releasable(std::span<const uint32_t> owners) const {
    const std::span<const mt_owner> values = tables_->owners.values();
    std::set<uint32_t> parents;
    for (const mt_owner& value : values)
        if (load(value.tgid) != 0) parents.insert(load(value.parent_owner));
    std::vector<uint32_t> found;
    for (const uint32_t owner : owners)
        if (owner != 0 && owner < values.size() && (load(values[owner].flags) & MT_OWNER_UNHELD) &&
            !parents.contains(owner))
            found.push_back(owner);
    return found;
}

Snapshot Session::release(std::span<const uint32_t> owners) {
    std::vector<bool> is_released(MT_MAX_OWNERS, false);
    bool have_blocks = false;
    for (const uint32_t owner : owners) {
        is_released[owner] = true;
        have_blocks |= load(tables_->owners.values()[owner].live_blocks) != 0;
    }
    Snapshot last;
    append_sites(last);
    append_address_spaces(last);
    std::erase_if(last.sites, [&](const Site& site) { return !is_released[site.owner]; });
    std::erase_if(last.address_spaces, [&](const AddressSpace& space) { return !is_released[space.owner]; });
    if (have_blocks) release_blocks(is_released);
    release_sites(is_released);
    for (const uint32_t owner : owners)
        release_owner(owner);
    release_inheritance(is_released);
    const int free_owners_fd = bpf_map__fd(skeleton_->maps.free_owners);
    for (const uint32_t owner : owners)
        push(free_owners_fd, owner);
    return last;
}

/// As the kernel side does at an exec or exit (end_owner, settle_descent), for one that is not wanted any more.
void Session::end_owner(uint32_t owner) {
    const std::span<mt_owner> values = tables_->owners.values();
    mt_owner& ended = values[owner];
    __atomic_store_n(&ended.ended_ns, monotonic_now_ns(), __ATOMIC_RELEASE);
    const mt_u64 mm = __atomic_exchange_n(&ended.mm, mt_u64{0}, __ATOMIC_ACQ_REL);
    mt_u32 serial = 0;
    const int by_mm_fd = bpf_map__fd(skeleton_->maps.owners_by_mm);
    if (bpf_map_lookup_elem(by_mm_fd, &mm, &serial) == 0 && serial == owner) bpf_map_delete_elem(by_mm_fd, &mm);
    // Another side may have ended it meanwhile, and told those above.
    if (__atomic_fetch_or(&ended.flags, static_cast<mt_u32>(MT_OWNER_ENDED), __ATOMIC_ACQ_REL) & MT_OWNER_ENDED) return;
    __atomic_fetch_and(&ended.flags, ~static_cast<mt_u32>(MT_OWNER_ARMED), __ATOMIC_ACQ_REL);
    for (uint32_t above = owner; above != 0 && above < values.size(); above = load(values[above].parent_owner)) {
        if (!(load(values[above].flags) & MT_OWNER_ENDED) || load(values[above].holders) != 0) return;
        const mt_u32 before =
            __atomic_fetch_or(&values[above].flags, static_cast<mt_u32>(MT_OWNER_UNHELD), __ATOMIC_ACQ_REL);
        if (before & MT_OWNER_UNHELD) return;
        const uint32_t parent = load(values[above].parent_owner);
        if (parent == 0 || __atomic_fetch_sub(&values[parent].holders, 1u, __ATOMIC_ACQ_REL) != 1) return;
    }
}

void Session::release_blocks(const std::vector<bool>& owners) {
    for (mt_bucket& bucket : tables_->live_blocks.values())
        for (mt_u64& key_there : bucket.keys) {
            mt_u64 key = load(key_there);
            if (key <= MT_BLOCK_BUSY || !owners[(key >> owner_shift) % MT_MAX_OWNERS]) continue;
            __atomic_compare_exchange_n(&key_there, &key, mt_u64{0}, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
        }
    if (load(skeleton_->bss->overflow_blocks) <= 0) return;
    const int overflow_fd = bpf_map__fd(skeleton_->maps.live_overflow);
    for (const uint64_t key : entries_of<uint64_t, mt_block>(
             overflow_fd, [&](uint64_t key, const mt_block&) { return owners[(key >> owner_shift) % MT_MAX_OWNERS]; }))
        if (bpf_map_delete_elem(overflow_fd, &key) == 0)
            __atomic_fetch_sub(&skeleton_->bss->overflow_blocks, 1, __ATOMIC_ACQ_REL);
}

void Session::release_sites(const std::vector<bool>& owners) {
    const int by_key_fd = bpf_map__fd(skeleton_->maps.sites_by_key);
    const int free_sites_fd = bpf_map__fd(skeleton_->maps.free_sites);
    const uint32_t max_sites = skeleton_->rodata->max_sites;
    const uint32_t used = std::min(load(skeleton_->bss->sites_given) + 1, max_sites);
    std::vector<bool> released(max_sites + MT_MAX_OWNERS, false);
    for (uint32_t index = 1; index < used; ++index) {
        mt_site& site = tables_->sites.values()[index];
        const uint32_t flags = load(site.flags);
        if (!(flags & MT_SITE_READY) || !owners[site.key.owner % MT_MAX_OWNERS]) continue;
        if (flags & MT_SITE_STACK_SENT_RAW)
            __atomic_fetch_sub(&skeleton_->bss->raw_sites_given, 1, __ATOMIC_ACQ_REL);
        else
            bpf_map_delete_elem(by_key_fd, &site.key);
        std::memset(&site, 0, sizeof site);
        released[index] = true;
    }
    for (uint32_t owner = 1; owner < MT_MAX_OWNERS; ++owner) {
        if (!owners[owner]) continue;
        std::memset(&tables_->sites.values()[max_sites + owner], 0, sizeof(mt_site));
        released[max_sites + owner] = true;
    }
    release_typed_objects(released);
    for (uint32_t index = 1; index < used; ++index)
        if (released[index]) push(free_sites_fd, index);
}

void Session::release_owner(uint32_t owner) {
    mt_owner& value = tables_->owners.values()[owner];
    __atomic_store_n(&value.tgid, 0, __ATOMIC_RELEASE);
    const uint32_t code_generation = load(value.code_generation);
    std::memset(&value, 0, sizeof value);
    // Threads that knew the code of the last one must not take it for the next one's.
    __atomic_store_n(&value.code_generation, code_generation + 1, __ATOMIC_RELEASE);
    unwind_tables_->clear_cache(owner);
}

template <typename IsReleased>
static void delete_frees(int map_fd, const IsReleased& is_released) {
    for (const uint64_t key : entries_of<uint64_t, mt_inherited_free>(
             map_fd, [&](uint64_t of, const mt_inherited_free&) { return is_released(of); }))
        bpf_map_delete_elem(map_fd, &key);
}

/// Forks of each owner whose children are still in the table.
static std::map<uint32_t, std::set<uint32_t>> forks_by_parent(std::span<const mt_owner> values) {
    std::map<uint32_t, std::set<uint32_t>> forks_of;
    for (const mt_owner& value : values)
        if (load(value.tgid) != 0 && load(value.parent_owner) != 0)
            forks_of[load(value.parent_owner)].insert(load(value.fork_number));
    return forks_of;
}

/// Besides what the owners gave back themselves: ghosts that they were the last to hold.
void Session::release_inheritance(const std::vector<bool>& owners) {
    if (load(skeleton_->bss->forks_followed) == 0) return;
    const auto is_of_released = [&](uint64_t key) { return owners[(key >> owner_shift) % MT_MAX_OWNERS]; };
    delete_frees(bpf_map__fd(skeleton_->maps.inherited_frees), is_of_released);
    const std::map<uint32_t, std::set<uint32_t>> forks_of = forks_by_parent(tables_->owners.values());
    std::set<uint64_t> of_many;
    const auto is_held = [&](const mt_ghost_key& key, const mt_block& ghost) {
        const auto forks = forks_of.find(static_cast<uint32_t>(key.block >> owner_shift));
        if (is_of_released(key.block) || forks == forks_of.end()) return false;
        const auto fork = forks->second.upper_bound(ghost.forks);
        return fork != forks->second.end() && *fork <= key.forks;
    };
    const int ghosts_fd = bpf_map__fd(skeleton_->maps.ghosts);
    std::vector<mt_ghost_key> dead;
    std::vector<uint64_t> marks;
    for_each_entry<mt_ghost_key, mt_block>(ghosts_fd, [&](const mt_ghost_key& key, const mt_block& ghost) {
        if (key.forks == MT_GHOST_OF_MANY)
            marks.push_back(key.block);
        else if (!is_held(key, ghost))
            dead.push_back(key);
        else if (key.forks - ghost.forks > MT_GHOST_TRIES)
            of_many.insert(key.block);
    });
    // A mark is put there after its ghost: one without may be of a ghost that came while they were read.
    std::set<uint64_t> doubted;
    for (const uint64_t block : marks) {
        if (of_many.contains(block)) continue;
        if (is_of_released(block) || doubted_ghosts_.contains(block))
            dead.push_back({.block = block, .forks = MT_GHOST_OF_MANY, .reserved = 0});
        else
            doubted.insert(block);
    }
    doubted_ghosts_ = std::move(doubted);
    for (const mt_ghost_key& key : dead)
        bpf_map_delete_elem(ghosts_fd, &key);
}

}  // namespace memtrace
