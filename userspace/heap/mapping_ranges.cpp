// What happens to ranges that stay mapped, System V segments, and the ledger seen against the kernel's own list.
#include <algorithm>
#include <iterator>

#include "heap/mappings.hpp"
#include "heap/page_range.hpp"

namespace memtrace {
/// shmdt(2) takes all that is left of what one shmat mapped, and nothing else (ipc/shm.c, ksys_shmdt).
void MappingLedger::begin_detach(Space& space, const mt_mapping_event& event) {
    std::vector<std::pair<uint64_t, uint64_t>> ranges;
    uint64_t mapping = 0;
    for (auto piece = space.pieces.lower_bound(event.address); piece != space.pieces.end(); ++piece) {
        const bool is_of_segment = piece->second.offset == piece->first - event.address &&
                                   space.mappings.at(piece->second.mapping).backing == MappingBacking::shared;
        if (mapping == 0 && !is_of_segment) break;
        if (mapping == 0) mapping = piece->second.mapping;
        if (piece->second.mapping == mapping) ranges.emplace_back(piece->first, piece->second.end);
    }
    Call call{MT_EVENT_UNMAP, event.header.time_ns, ranges.empty(), {}};
    for (const auto& [start, end] : ranges)
        for (TakenPiece& piece : cut(space, start, end))
            call.pieces.push_back(piece);
    space.totals.unknown_unmaps += call.was_unknown ? 1 : 0;
    unmap(space, call.pieces);
    forget_old_unmaps(space, event.header.time_ns);
    space.calls[event.header.tid] = std::move(call);
}

void MappingLedger::protect(Space& space, const mt_mapping_event& event) {
    const PageRange range = whole_pages(event.address, event.size_bytes);
    const bool is_reserved = event.protection == 0;  // PROT_NONE
    for (TakenPiece& piece : cut(space, range.start, range.end)) {
        const uint64_t size_bytes = piece.end - piece.start;
        if (piece.is_reserved != is_reserved && piece.origin.is_counted()) {
            const MappingParts before = parts_of(piece.origin, piece.is_reserved, size_bytes);
            const MappingParts after = parts_of(piece.origin, is_reserved, size_bytes);
            (space.totals.parts += after) -= before;
            (site_parts_[piece.origin.site] += after) -= before;
        }
        piece.is_reserved = is_reserved;
        fill(space, piece);
    }
    join_pieces(space, range.start, range.end);
}

/// Programs protect and unprotect the same ranges over and over: what is one piece again is kept as one.
void MappingLedger::join_pieces(Space& space, uint64_t start, uint64_t end) {
    auto position = space.pieces.lower_bound(start);
    if (position != space.pieces.begin()) --position;
    while (position != space.pieces.end() && position->first <= end) {
        const auto next = std::next(position);
        if (next == space.pieces.end()) return;
        const Piece& left = position->second;
        const Piece& right = next->second;
        const bool is_one = left.end == next->first && left.mapping == right.mapping &&
                            left.is_reserved == right.is_reserved &&
                            left.offset + left.end - position->first == right.offset;
        if (!is_one) {
            position = next;
            continue;
        }
        position->second.end = right.end;
        space.pieces.erase(next);
    }
}

void MappingLedger::discard(Space& space, const mt_mapping_event& event) {
    const PageRange range = whole_pages(event.address, event.size_bytes);
    auto piece = space.pieces.upper_bound(range.start);
    if (piece != space.pieces.begin()) --piece;
    for (; piece != space.pieces.end() && piece->first < range.end; ++piece) {
        const uint64_t from = std::max(piece->first, range.start);
        const uint64_t to = std::min(piece->second.end, range.end);
        if (from < to && space.mappings.at(piece->second.mapping).is_counted())
            space.totals.discarded_bytes += to - from;
    }
}

uint64_t MappingLedger::resync(uint32_t owner, const std::vector<MappedRange>& mapped) {
    const auto found = spaces_.find(owner);
    if (found == spaces_.end()) return 0;
    Space& space = found->second;
    uint64_t gone_bytes = 0;
    const auto drop = [&](uint64_t start, uint64_t end) {
        for (const TakenPiece& piece : cut(space, start, end)) {
            gone_bytes += piece.end - piece.start;
            count_unmapped(space, piece, piece.end - piece.start);
        }
    };
    uint64_t known_until = 0;
    for (const MappedRange& range : mapped) {
        drop(known_until, range.start);
        known_until = range.end;
        // What is of another kind now was unmapped before.
        std::vector<std::pair<uint64_t, uint64_t>> others;
        auto piece = space.pieces.upper_bound(range.start);
        if (piece != space.pieces.begin()) --piece;
        for (; piece != space.pieces.end() && piece->first < range.end; ++piece)
            if (piece->second.end > range.start && space.mappings.at(piece->second.mapping).backing != range.backing)
                others.emplace_back(std::max(piece->first, range.start), std::min(piece->second.end, range.end));
        for (const auto& [start, end] : others)
            drop(start, end);
    }
    drop(known_until, UINT64_MAX);
    return gone_bytes;
}

std::vector<KnownRange> MappingLedger::ranges(uint32_t owner) const {
    std::vector<KnownRange> ranges;
    const auto space = spaces_.find(owner);
    if (space == spaces_.end()) return ranges;
    for (const auto& [start, piece] : space->second.pieces) {
        const Mapping& mapping = space->second.mappings.at(piece.mapping);
        const bool joins = !ranges.empty() && ranges.back().end == start && ranges.back().use == mapping.use &&
                           ranges.back().backing == mapping.backing;
        if (joins)
            ranges.back().end = piece.end;
        else
            ranges.push_back({start, piece.end, mapping.use, mapping.backing});
    }
    return ranges;
}

}  // namespace memtrace
