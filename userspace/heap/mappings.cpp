#include "heap/mappings.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "heap/page_range.hpp"

namespace memtrace {
namespace {

// Linux's numbers (include/uapi/linux/mman.h, asm-generic/hugetlb_encode.h), so that a recording reads the same
// anywhere.
constexpr uint32_t map_shared_types = 1;  // MAP_SHARED and MAP_SHARED_VALIDATE have it
constexpr uint32_t map_anonymous = 0x20;
constexpr uint32_t map_noreserve = 0x4000;
constexpr uint32_t map_stack = 0x20000;
constexpr uint32_t prot_none = 0;
constexpr uint32_t map_hugetlb = 0x40000;
constexpr uint32_t map_huge_shift = 26;
constexpr uint32_t map_huge_mask = 0x3f;
constexpr uint32_t mremap_dontunmap = 4;
constexpr size_t most_earlier_ranges = 65536;
constexpr uint64_t default_huge_page_bytes = 2 << 20;

/// Page size that mmap(2) rounds a length up to.
uint64_t page_bytes_of_map(uint32_t map_flags) {
    if ((map_flags & map_hugetlb) == 0) return page_bytes;
    const uint32_t encoded = (map_flags >> map_huge_shift) & map_huge_mask;
    return encoded == 0 ? default_huge_page_bytes : uint64_t{1} << encoded;
}

MappingBacking backing_of(uint32_t map_flags) {
    if ((map_flags & map_shared_types) != 0) return MappingBacking::shared;
    return (map_flags & map_anonymous) != 0 ? MappingBacking::anonymous : MappingBacking::file;
}

}  // namespace

MappingParts& MappingParts::operator+=(const MappingParts& other) {
    reserved_bytes += other.reserved_bytes;
    file_bytes += other.file_bytes;
    shared_bytes += other.shared_bytes;
    stack_bytes += other.stack_bytes;
    return *this;
}

MappingParts& MappingParts::operator-=(const MappingParts& other) {
    reserved_bytes -= other.reserved_bytes;
    file_bytes -= other.file_bytes;
    shared_bytes -= other.shared_bytes;
    stack_bytes -= other.stack_bytes;
    return *this;
}

MappingParts MappingLedger::parts_of(const Mapping& mapping, bool is_reserved, uint64_t size_bytes) {
    return {.reserved_bytes = is_reserved ? size_bytes : 0,
            .file_bytes = mapping.backing == MappingBacking::file ? size_bytes : 0,
            .shared_bytes = mapping.backing == MappingBacking::shared ? size_bytes : 0,
            .stack_bytes = mapping.use == MappingUse::stack ? size_bytes : 0};
}

MappingTotals& MappingTotals::operator+=(const MappingTotals& other) {
    live_bytes += other.live_bytes;
    live_count += other.live_count;
    mapped_bytes += other.mapped_bytes;
    unmapped_bytes += other.unmapped_bytes;
    inherited_bytes += other.inherited_bytes;
    discarded_bytes += other.discarded_bytes;
    parts += other.parts;
    unknown_unmaps += other.unknown_unmaps;
    return *this;
}

void MappingLedger::apply(const mt_mapping_event& event, bool caller_is_allocator, const SharedMapping& shared) {
    const uint32_t type = event.header.type;
    const bool is_of_range = type >= MT_EVENT_PROTECT && type <= MT_EVENT_DETACH;
    if (!is_of_range && (type < MT_EVENT_MAP || type > MT_EVENT_REMAP_FAILED)) return;
    Space& space = spaces_[event.header.owner];
    auto node = space.calls.extract(event.header.tid);
    const Call call = node ? std::move(node.mapped()) : Call{};
    const bool ends_remap = type == MT_EVENT_REMAP_DONE || type == MT_EVENT_REMAP_FAILED;
    // The end of that mremap was lost: what it held is not known to be mapped any more.
    if (call.type == MT_EVENT_REMAP && !ends_remap) unmap(space, call.pieces);

    if (type == MT_EVENT_MAP) map(space, event, caller_is_allocator, shared);
    if (type == MT_EVENT_UNMAP) begin_unmap(space, event, caller_is_allocator);
    if (type == MT_EVENT_DETACH) begin_detach(space, event);
    if (type == MT_EVENT_PROTECT) protect(space, event);
    if (type == MT_EVENT_DISCARD) discard(space, event);
    if (type == MT_EVENT_UNMAP_FAILED && call.type == MT_EVENT_UNMAP) undo_unmap(space, call);
    if (type == MT_EVENT_REMAP) begin_remap(space, event);
    if (type == MT_EVENT_REMAP_DONE) finish_remap(space, event, call, caller_is_allocator);
    if (type == MT_EVENT_REMAP_FAILED && call.type == MT_EVENT_REMAP) undo_remap(space, call);
}

/// A new one where nothing is shared.
uint64_t MappingLedger::object_of(const SharedMapping& shared) {
    if (!shared.is_known()) return ++last_object_;
    const auto [object, is_new] = shared_objects_.try_emplace({shared.device, shared.inode}, last_object_ + 1);
    if (is_new) ++last_object_;
    has_shared_ = true;
    return object->second;
}

void MappingLedger::map(Space& space, const mt_mapping_event& event, bool caller_is_allocator,
                        const SharedMapping& shared) {
    const PageRange range = whole_pages(event.address, event.size_bytes, page_bytes_of_map(event.map_flags));
    unmap(space, cut(space, range.start, range.end));
    Source source{event.site, event.header.time_ns, object_of(shared), shared.offset};
    source.backing = backing_of(event.map_flags);
    source.is_reserved = event.protection == prot_none || (event.map_flags & map_noreserve) != 0;
    const bool is_stack = (event.map_flags & map_stack) != 0 && source.backing == MappingBacking::anonymous;
    if (is_stack) source.use = MappingUse::stack;
    if (caller_is_allocator) source.use = MappingUse::allocator;
    add_mapping(space, range.start, range.end, source);
}

void MappingLedger::begin_unmap(Space& space, const mt_mapping_event& event, bool caller_is_allocator) {
    const PageRange range = whole_pages(event.address, event.size_bytes);
    Call call{MT_EVENT_UNMAP, event.header.time_ns, false, cut(space, range.start, range.end)};
    uint64_t known_bytes = 0;
    for (const TakenPiece& piece : call.pieces)
        known_bytes += piece.end - piece.start;
    call.was_unknown = !caller_is_allocator && known_bytes < range.size();
    if (known_bytes < range.size() && space.earlier.size() < most_earlier_ranges)
        space.earlier.push_back(
            {range.start, range.end, caller_is_allocator ? MappingUse::allocator : MappingUse::program});
    space.totals.unknown_unmaps += call.was_unknown ? 1 : 0;
    unmap(space, call.pieces);
    forget_old_unmaps(space, event.header.time_ns);
    space.calls[event.header.tid] = std::move(call);
}

void MappingLedger::undo_unmap(Space& space, const Call& call) {
    space.totals.unknown_unmaps -= call.was_unknown ? 1 : 0;
    for (const TakenPiece& piece : call.pieces)
        uncount_unmapped(space, piece, fill(space, piece));
}

void MappingLedger::begin_remap(Space& space, const mt_mapping_event& event) {
    const PageRange range = whole_pages(event.old_address, event.old_size_bytes);
    // Still counted as live: whether mremap gives it back is known when it has ended.
    space.calls[event.header.tid] = {MT_EVENT_REMAP, event.header.time_ns, false, cut(space, range.start, range.end)};
}

/// What mremap had keeps its owner and birth; what it adds belongs to its caller. Where the old range stays (old size 0
/// or MREMAP_DONTUNMAP, Linux 5.7) the whole new one is added.
void MappingLedger::finish_remap(Space& space, const mt_mapping_event& event, const Call& call,
                                 bool caller_is_allocator) {
    const PageRange old_range = whole_pages(event.old_address, event.old_size_bytes);
    const PageRange new_range = whole_pages(event.address, event.size_bytes);
    const bool old_range_stays = old_range.size() == 0 || (event.map_flags & mremap_dontunmap) != 0;
    // Without the event of its entry (lost), what it took is still in the ledger.
    const std::vector<TakenPiece> taken =
        call.type == MT_EVENT_REMAP ? call.pieces : cut(space, old_range.start, old_range.end);
    unmap(space, cut(space, new_range.start, new_range.end));
    const uint64_t kept_bytes = old_range_stays ? 0 : std::min(old_range.size(), new_range.size());
    if (old_range_stays)
        move_pieces(space, taken, old_range.start, old_range.start, old_range.size());
    else
        move_pieces(space, taken, old_range.start, new_range.start, kept_bytes);
    Source source{event.site, event.header.time_ns, 0, 0};
    if (caller_is_allocator) source.use = MappingUse::allocator;
    // What grows shows what follows in the same object.
    if (!taken.empty() && kept_bytes > 0) {
        source.object = taken.back().origin.object;
        source.backing = taken.back().origin.backing;
        source.is_reserved = taken.back().is_reserved;
        source.offset = taken.back().offset + taken.back().end - taken.back().start;
    } else {
        source.object = ++last_object_;
    }
    add_mapping(space, new_range.start + kept_bytes, new_range.end, source);
}

void MappingLedger::undo_remap(Space& space, const Call& call) {
    for (const TakenPiece& piece : call.pieces) {
        const uint64_t size_bytes = piece.end - piece.start;
        count_unmapped(space, piece, size_bytes - fill(space, piece));
    }
}

void MappingLedger::add_mapping(Space& space, uint64_t start, uint64_t end, const Source& source) {
    if (start >= end) return;
    const uint64_t size_bytes = end - start;
    space.pieces[start] = {end, ++last_mapping_, source.offset, source.is_reserved};
    const Mapping mapping{.site = source.site,
                          .birth_ns = source.birth_ns,
                          .object = source.object,
                          .use = source.use,
                          .backing = source.backing,
                          .live_bytes = size_bytes};
    space.mappings[last_mapping_] = mapping;
    if (!mapping.is_counted()) return;
    const MappingParts parts = parts_of(mapping, source.is_reserved, size_bytes);
    space.totals.live_bytes += size_bytes;
    space.totals.live_count += 1;
    space.totals.mapped_bytes += size_bytes;
    space.totals.parts += parts;
    sites_[source.site].allocated_bytes += size_bytes;
    sites_[source.site].allocations += 1;
    site_parts_[source.site] += parts;
}

/// Pieces of [from, from + size_bytes) go to the same places from `to` on; what lies behind is unmapped.
void MappingLedger::move_pieces(Space& space, const std::vector<TakenPiece>& pieces, uint64_t from, uint64_t to,
                                uint64_t size_bytes) {
    for (const TakenPiece& piece : pieces) {
        const uint64_t end = std::min(piece.end, from + size_bytes);
        const uint64_t kept_bytes = end > piece.start ? end - piece.start : 0;
        uint64_t filled_bytes = 0;
        if (kept_bytes > 0) {
            TakenPiece moved = piece;
            moved.start = piece.start - from + to;
            moved.end = moved.start + kept_bytes;
            filled_bytes = fill(space, moved);
        }
        count_unmapped(space, piece, piece.end - piece.start - filled_bytes);
    }
}

void MappingLedger::unmap(Space& space, const std::vector<TakenPiece>& pieces) {
    for (const TakenPiece& piece : pieces)
        count_unmapped(space, piece, piece.end - piece.start);
}

void MappingLedger::count_unmapped(Space& space, const TakenPiece& piece, uint64_t size_bytes) {
    if (size_bytes == 0) return;
    const auto mapping = space.mappings.find(piece.mapping);
    mapping->second.live_bytes -= size_bytes;
    const bool is_gone = mapping->second.live_bytes == 0;
    if (is_gone) space.mappings.erase(mapping);
    if (piece.origin.use == MappingUse::allocator) return;
    if (piece.origin.is_inherited) {
        space.totals.inherited_bytes -= size_bytes;
        return;
    }
    const MappingParts parts = parts_of(piece.origin, piece.is_reserved, size_bytes);
    space.totals.live_bytes -= size_bytes;
    space.totals.unmapped_bytes += size_bytes;
    space.totals.parts -= parts;
    sites_[piece.origin.site].freed_bytes += size_bytes;
    site_parts_[piece.origin.site] -= parts;
    if (!is_gone) return;
    space.totals.live_count -= 1;
    sites_[piece.origin.site].frees += 1;
}

void MappingLedger::uncount_unmapped(Space& space, const TakenPiece& piece, uint64_t size_bytes) {
    if (size_bytes == 0) return;
    const auto [mapping, was_gone] = space.mappings.try_emplace(piece.mapping, piece.origin);
    mapping->second.live_bytes += size_bytes;
    if (piece.origin.use == MappingUse::allocator) return;
    if (piece.origin.is_inherited) {
        space.totals.inherited_bytes += size_bytes;
        return;
    }
    const MappingParts parts = parts_of(piece.origin, piece.is_reserved, size_bytes);
    space.totals.live_bytes += size_bytes;
    space.totals.unmapped_bytes -= size_bytes;
    space.totals.parts += parts;
    sites_[piece.origin.site].freed_bytes -= size_bytes;
    site_parts_[piece.origin.site] += parts;
    if (!was_gone) return;
    space.totals.live_count += 1;
    sites_[piece.origin.site].frees -= 1;
}

/// Takes [start, end) out of the intervals, in address order; the sums are left to the caller.
std::vector<MappingLedger::TakenPiece> MappingLedger::cut(Space& space, uint64_t start, uint64_t end) {
    std::vector<TakenPiece> taken;
    if (start >= end) return taken;
    auto position = space.pieces.upper_bound(start);
    if (position != space.pieces.begin() && std::prev(position)->second.end > start) --position;
    while (position != space.pieces.end() && position->first < end) {
        const uint64_t piece_start = position->first;
        const Piece piece = position->second;
        Mapping origin = space.mappings.at(piece.mapping);
        origin.live_bytes = 0;
        const uint64_t taken_start = std::max(piece_start, start);
        taken.push_back({taken_start, std::min(piece.end, end), piece.mapping, piece.offset + taken_start - piece_start,
                         piece.is_reserved, origin});
        position = space.pieces.erase(position);
        if (piece_start < start) space.pieces[piece_start] = {start, piece.mapping, piece.offset, piece.is_reserved};
        if (piece.end > end)
            space.pieces[end] = {piece.end, piece.mapping, piece.offset + end - piece_start, piece.is_reserved};
    }
    return taken;
}

/// Puts `piece` where no other piece lies by now; returns how many bytes found their place.
uint64_t MappingLedger::fill(Space& space, const TakenPiece& piece) {
    uint64_t filled_bytes = 0;
    uint64_t start = piece.start;
    auto next = space.pieces.upper_bound(start);
    if (next != space.pieces.begin()) start = std::max(start, std::prev(next)->second.end);
    while (start < piece.end) {
        const uint64_t gap_end = next == space.pieces.end() ? piece.end : std::min(piece.end, next->first);
        if (start < gap_end) {
            space.pieces[start] = {gap_end, piece.mapping, piece.offset + start - piece.start, piece.is_reserved};
            filled_bytes += gap_end - start;
        }
        if (next == space.pieces.end()) break;
        start = std::max(start, next->second.end);
        ++next;
    }
    return filled_bytes;
}

/// A thread that ends leaves its last munmap behind. One that could still fail is young.
void MappingLedger::forget_old_unmaps(Space& space, uint64_t now_ns) {
    constexpr size_t many_calls = 4096;
    constexpr uint64_t longest_call_ns = 10'000'000'000;
    if (space.calls.size() < many_calls) return;
    std::erase_if(space.calls, [&](const auto& entry) {
        return entry.second.type == MT_EVENT_UNMAP && entry.second.time_ns + longest_call_ns < now_ns;
    });
}

void MappingLedger::end_owner(uint32_t owner) {
    const auto found = spaces_.find(owner);
    if (found == spaces_.end()) return;
    Space& space = found->second;
    for (const auto& [key, mapping] : space.mappings) {
        if (!mapping.is_counted()) continue;
        site_parts_.erase(mapping.site);
        sites_[mapping.site].freed_bytes += mapping.live_bytes;
        sites_[mapping.site].frees += 1;
    }
    space.totals.unmapped_bytes += space.totals.live_bytes;
    space.totals.live_bytes = 0;
    space.totals.live_count = 0;
    space.totals.inherited_bytes = 0;
    space.totals.parts = {};
    space.pieces.clear();
    space.mappings.clear();
    space.calls.clear();
}

const std::vector<KnownRange>& MappingLedger::earlier_ranges(uint32_t owner) const {
    static const std::vector<KnownRange> none;
    const auto found = spaces_.find(owner);
    return found == spaces_.end() ? none : found->second.earlier;
}

MappingTotals MappingLedger::totals(uint32_t owner) const {
    const auto found = spaces_.find(owner);
    return found == spaces_.end() ? MappingTotals{} : found->second.totals;
}

SiteTotals MappingLedger::site_totals(uint32_t site) const {
    const auto found = sites_.find(site);
    return found == sites_.end() ? SiteTotals{} : found->second;
}

MappingParts MappingLedger::site_parts(uint32_t site) const {
    const auto found = site_parts_.find(site);
    return found == site_parts_.end() ? MappingParts{} : found->second;
}

std::vector<Block> MappingLedger::live_mappings() const {
    std::vector<Block> blocks;
    for (const auto& [owner, space] : spaces_) {
        std::unordered_map<uint64_t, uint64_t> addresses;  // lowest, by mapping
        const auto note = [&](uint64_t mapping, uint64_t start) {
            uint64_t& address = addresses.try_emplace(mapping, start).first->second;
            address = std::min(address, start);
        };
        for (const auto& [start, piece] : space.pieces)
            note(piece.mapping, start);
        for (const auto& [tid, call] : space.calls)
            for (const TakenPiece& piece : call.pieces)
                if (call.type == MT_EVENT_REMAP) note(piece.mapping, piece.start);
        for (const auto& [key, mapping] : space.mappings)
            if (mapping.is_counted())
                blocks.push_back({addresses[key], mapping.live_bytes, mapping.birth_ns, mapping.site, owner});
    }
    return blocks;
}

}  // namespace memtrace
