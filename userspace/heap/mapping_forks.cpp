// Mappings of several address spaces together: what fork copies, and what is shared.
#include <algorithm>
#include <iterator>
#include <tuple>

#include "heap/mappings.hpp"

namespace memtrace {
namespace {

/// Ranges of one object that somebody has counted.
class Covered {
  public:
    /// Bytes of [start, end) that are new.
    uint64_t add(uint64_t start, uint64_t end) {
        uint64_t new_bytes = end - start;
        auto range = ranges_.upper_bound(start);
        if (range != ranges_.begin() && std::prev(range)->second >= start) --range;
        uint64_t merged_start = start;
        uint64_t merged_end = end;
        while (range != ranges_.end() && range->first <= end) {
            const uint64_t overlap_start = std::max(start, range->first);
            const uint64_t overlap_end = std::min(end, range->second);
            new_bytes -= overlap_end - overlap_start;
            merged_start = std::min(merged_start, range->first);
            merged_end = std::max(merged_end, range->second);
            range = ranges_.erase(range);
        }
        ranges_[merged_start] = merged_end;
        return new_bytes;
    }

  private:
    std::map<uint64_t, uint64_t> ranges_;  // end by start; disjoint
};

}  // namespace

void MappingLedger::fork(uint32_t parent, uint32_t child) {
    const auto found = spaces_.find(parent);
    if (found == spaces_.end() || parent == child) return;
    // References into the table stay good when the child's is added.
    const Space& from = found->second;
    Space& to = spaces_[child];
    std::unordered_map<uint64_t, uint64_t> copies;
    for (const auto& [start, piece] : from.pieces) {
        const auto [copy, is_new] = copies.try_emplace(piece.mapping, last_mapping_ + 1);
        if (is_new) {
            Mapping& copied = to.mappings[++last_mapping_] = from.mappings.at(piece.mapping);
            copied.is_inherited = true;
            copied.live_bytes = 0;
        }
        to.pieces[start] = {piece.end, copy->second, piece.offset, piece.is_reserved};
        Mapping& mapping = to.mappings[copy->second];
        mapping.live_bytes += piece.end - start;
        if (mapping.use == MappingUse::allocator) continue;
        to.totals.inherited_bytes += piece.end - start;
        has_shared_ = true;
    }
}

/// What is counted twice, or is held beside what is counted, of one object.
template <typename Held, typename PartsOf>
void add_corrections(std::vector<Held>& held, std::map<uint32_t, MappingCorrection>& sites, const PartsOf& parts_of) {
    // Who mapped it first has it; who inherited it has what is left.
    std::ranges::sort(held, {}, [](const Held& one) {
        return std::tuple(one.of->is_inherited, one.of->birth_ns, one.mapping, one.offset);
    });
    Covered covered;
    std::map<uint64_t, uint64_t> new_bytes;  // by mapping
    for (const Held& one : held)
        new_bytes[one.mapping] += covered.add(one.offset, one.end);
    std::map<uint64_t, const Held*> mappings;
    for (const Held& one : held)
        mappings[one.mapping] = &one;
    for (const auto& [mapping, one] : mappings) {
        const uint64_t counted_bytes = new_bytes[mapping];
        MappingCorrection& site = sites[one->of->site];
        if (one->of->is_inherited) {
            site.held_bytes += counted_bytes;
            site.held += parts_of(*one->of, counted_bytes);
            site.held_count += counted_bytes > 0 ? 1 : 0;
            continue;
        }
        site.twice_bytes += one->of->live_bytes - counted_bytes;
        site.twice += parts_of(*one->of, one->of->live_bytes - counted_bytes);
        site.twice_count += counted_bytes == 0 ? 1 : 0;
    }
}

std::vector<MappingCorrection> MappingLedger::corrections(const std::vector<uint32_t>& owners) const {
    if (!has_shared_) return {};
    std::unordered_map<uint64_t, std::vector<Held>> objects;
    for (const uint32_t owner : owners) {
        const auto space = spaces_.find(owner);
        if (space == spaces_.end()) continue;
        const auto add = [&](uint64_t start, uint64_t end, uint64_t mapping, uint64_t offset) {
            const Mapping& of = space->second.mappings.at(mapping);
            if (of.use == MappingUse::allocator) return;
            objects[of.object].push_back({offset, offset + end - start, mapping, &of});
        };
        for (const auto& [start, piece] : space->second.pieces)
            add(start, piece.end, piece.mapping, piece.offset);
        // What mremap has taken still counts.
        for (const auto& [tid, call] : space->second.calls)
            for (const TakenPiece& piece : call.pieces)
                if (call.type == MT_EVENT_REMAP) add(piece.start, piece.end, piece.mapping, piece.offset);
    }
    std::map<uint32_t, MappingCorrection> sites;
    for (auto& [object, held] : objects)
        add_corrections(held, sites,
                        [](const Mapping& of, uint64_t size_bytes) { return parts_of(of, false, size_bytes); });
    std::vector<MappingCorrection> corrections;
    for (auto& [site, correction] : sites) {
        correction.site = site;
        if (correction.twice_bytes > 0 || correction.held_bytes > 0) corrections.push_back(correction);
    }
    return corrections;
}

}  // namespace memtrace
