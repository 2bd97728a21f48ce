#include "tracing/collected_heaps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/units.hpp"
#include "runtimes/object_types.hpp"

namespace memtrace {
namespace {

using Rows = std::unordered_map<uint32_t, uint32_t>;  // by call site

Rows rows_of(const Snapshot& snapshot, uint32_t owner) {
    Rows rows;
    for (const Site& site : snapshot.sites)
        if (site.owner == owner) rows.emplace(site.index, site.row);
    return rows;
}

/// By address, so that each of the collector's blocks is read once.
std::vector<Block> collected_blocks(const Snapshot& snapshot, uint32_t owner, const AllocatorTable& table,
                                    const Rows& rows) {
    std::vector<Block> blocks;
    for (const Block& block : snapshot.blocks) {
        if (block.owner != owner) continue;
        const auto row = rows.find(block.site);
        if (row != rows.end() && table[row->second].kind == BlockKind::gc) blocks.push_back(block);
    }
    std::ranges::sort(blocks, {}, &Block::address);
    return blocks;
}

}  // namespace

void CollectedHeaps::open_heaps(const std::map<pid_t, Target>& targets) {
    for (const auto& [pid, target] : targets) {
        if (target.exit_code) continue;
        const auto mapping = std::ranges::find(target.allocator_mappings, true, &AllocatorMapping::has_collector);
        if (mapping == target.allocator_mappings.end()) continue;
        Heap& heap = heaps_[pid];
        heap.has_ended = false;
        if (!heap.boehm && !heap.has_warned) try_open(pid, mapping->mapping, heap);
    }
}

bool CollectedHeaps::open_soon(const std::map<pid_t, Target>& targets, uint64_t now_ns) {
    constexpr uint64_t between_tries_ns = 10'000'000;
    if (now_ns - tried_ns_ < between_tries_ns) return false;
    tried_ns_ = now_ns;
    open_heaps(targets);
    return true;
}

/// Fails for a moment while the dynamic linker is at work.
void CollectedHeaps::try_open(pid_t pid, const Mapping& mapping, Heap& heap) {
    auto boehm = open_boehm_heap(pid, mapping);
    const auto collections = boehm ? boehm->collections() : std::nullopt;
    if (!collections) {
        heap.why_not = boehm ? "its counter of collections cannot be read" : boehm.error().why;
        return;
    }
    heap.types = find_process_types(pid, dumped_names_);
    heap.first_collections = *collections;
    heap.opened_ns = monotonic_now_ns();
    heap.boehm = std::make_unique<BoehmHeap>(std::move(*boehm));
    const mt_type_source source = heap.types.is_crystal ? MT_TYPE_FIRST_WORD : MT_TYPE_NONE;
    session_.set_collector(pid, {.collection_counter = heap.boehm->layout().collection_counter,
                                 .type_source = static_cast<mt_u32>(source),
                                 .reserved = 0});
}

void CollectedHeaps::end_address_space(pid_t pid) {
    const auto heap = heaps_.find(pid);
    if (heap == heaps_.end()) return;
    Heap ended;
    ended.types = std::move(heap->second.types);
    ended.has_ended = true;
    heap->second = std::move(ended);
}

CollectedHeaps::Heap* CollectedHeaps::readable_heap(pid_t pid) {
    const auto heap = heaps_.find(pid);
    if (heap == heaps_.end() || heap->second.has_ended) return nullptr;
    if (heap->second.boehm) return &heap->second;
    if (!std::exchange(heap->second.has_warned, true))
        log_warning(fmt::format("process {}: its collector cannot be read, so live is an upper bound: {}", pid,
                                heap->second.why_not));
    return nullptr;
}

/// A program can allocate without a call (gc_inline.h); then the collector's own count runs away from what was seen.
void CollectedHeaps::check_is_complete(const Snapshot& snapshot, const AddressSpace& space, Heap& heap) {
    constexpr uint64_t least_bytes = 1 << 20;  // pages kept ready, and what happens between the two readings
    constexpr uint64_t most_added_bytes = 32;  // to a small object; a large one may become twice as large
    const auto counted_bytes = heap.boehm->allocated_bytes();
    if (!counted_bytes || heap.has_warned || snapshot.is_sampled) return;
    uint64_t seen_bytes = 0;
    for (const Site& site : snapshot.sites)
        if (site.owner == space.owner && table_[site.row].kind == BlockKind::gc)
            seen_bytes += 2 * site.totals.allocated_bytes + most_added_bytes * site.totals.allocations;
    if (!heap.unseen_bytes) heap.unseen_bytes = *counted_bytes - std::min(*counted_bytes, seen_bytes);
    if (*counted_bytes <= seen_bytes + *heap.unseen_bytes + least_bytes) return;
    heap.has_warned = true;
    log_warning(fmt::format("process {}: allocates from its collector without calls, which are not seen: at least {}",
                            space.pid, format_size(*counted_bytes - seen_bytes - *heap.unseen_bytes)));
}

/// Blocks of the snapshot that are older than this were born before the last of `collections`. The kernel side notes
/// the first block behind each collection that it sees (bpf/runtimes.h, note_collections).
uint64_t CollectedHeaps::youngest_collected_ns(const AddressSpace& space, const Heap& heap, uint64_t collections) {
    const uint64_t noted = space.collections;
    if (noted == 0) return collections > heap.first_collections ? heap.opened_ns : 0;
    if (noted == collections + 1) return space.collected_ns;
    return noted < collections + 1 ? UINT64_MAX : 0;
}

std::vector<Block> CollectedHeaps::dead_blocks(const Snapshot& snapshot, const AddressSpace& space,
                                               const Heap& heap) const {
    const auto collections = heap.boehm->collections();
    if (!collections) return {};
    const uint64_t younger_ns = youngest_collected_ns(space, heap, *collections);
    const Rows rows = rows_of(snapshot, space.owner);
    std::vector<Block> older;
    std::vector<CollectedBlock> asked;
    for (const Block& block : collected_blocks(snapshot, space.owner, table_, rows)) {
        if (block.birth_ns >= younger_ns) continue;
        older.push_back(block);
        asked.push_back({block.address, block.size_bytes, table_[rows.at(block.site)].may_return_inside});
    }
    const auto states = heap.boehm->states(asked);
    if (!states || heap.boehm->collections() != collections) return {};
    std::vector<Block> dead;
    for (size_t index = 0; index < older.size(); ++index)
        if ((*states)[index] != MarkState::marked) dead.push_back(older[index]);
    return dead;
}

bool CollectedHeaps::release_dead(const Snapshot& snapshot) {
    bool has_released = false;
    for (const AddressSpace& space : snapshot.address_spaces) {
        Heap* heap = space.ended_ns == 0 ? readable_heap(space.pid) : nullptr;
        if (heap == nullptr) continue;
        check_is_complete(snapshot, space, *heap);
        const std::vector<Block> dead = dead_blocks(snapshot, space, *heap);
        session_.release_collected(dead);
        has_released |= !dead.empty();
    }
    return has_released;
}

std::unordered_set<uint32_t> CollectedHeaps::owners_with_types(const Snapshot& snapshot) const {
    std::unordered_set<uint32_t> owners;
    for (const AddressSpace& space : snapshot.address_spaces)
        if (const auto heap = heaps_.find(space.pid); heap != heaps_.end() && heap->second.types.is_crystal)
            owners.insert(space.owner);
    return owners;
}

void CollectedHeaps::add_live_objects(Snapshot& snapshot) {
    std::unordered_map<uint32_t, uint32_t> owner_of;
    for (const Site& site : snapshot.sites)
        owner_of.emplace(site.index, site.owner);
    using Key = std::tuple<uint32_t, uint32_t, uint64_t>;  // site, type, size
    std::map<Key, TypedObjects> objects;
    const std::unordered_set<uint32_t> typed_owners = owners_with_types(snapshot);
    for (const TypedObjects& known : snapshot.typed_objects)
        if (typed_owners.contains(owner_of[known.site])) objects[{known.site, known.type, known.size_bytes}] = known;
    snapshot.typed_objects.clear();
    if (snapshot.is_sampled) return;
    for (const AddressSpace& space : snapshot.address_spaces) {
        const Heap* heap = space.ended_ns == 0 ? readable_heap(space.pid) : nullptr;
        if (heap == nullptr || !heap->types.is_crystal) continue;
        const auto blocks = collected_blocks(snapshot, space.owner, table_, rows_of(snapshot, space.owner));
        std::vector<uint64_t> addresses;
        for (const Block& block : blocks)
            addresses.push_back(block.address);
        const std::vector<uint32_t> words = heap->boehm->first_words(addresses);
        for (size_t index = 0; index < blocks.size(); ++index) {
            const Block& block = blocks[index];
            if (words[index] == 0 || words[index] >= MT_MAX_TYPES || block.size_bytes < sizeof(uint32_t)) continue;
            TypedObjects& known = objects[{block.site, words[index], block.size_bytes}];
            known = {block.site, words[index], block.size_bytes, known.allocations, known.live + 1};
        }
    }
    std::map<uint32_t, ObjectTypes> types;  // by owner
    for (auto& [key, known] : objects) {
        // The last object of each thread is counted when its thread allocates again.
        known.allocations = std::max(known.allocations, known.live);
        types[owner_of[known.site]].add(known.type, known.size_bytes, known.allocations);
    }
    for (const auto& [key, known] : objects)
        if (types[owner_of[known.site]].is_object(known.type, known.size_bytes))
            snapshot.typed_objects.push_back(known);
}

std::string CollectedHeaps::type_name(pid_t pid, uint32_t type) const {
    if (const auto heap = heaps_.find(pid); heap != heaps_.end())
        if (const auto name = heap->second.types.names.find(type); name != heap->second.types.names.end())
            return name->second;
    return fmt::format("type#{}", type);
}

}  // namespace memtrace
