#include "symbols/address_space_map.hpp"

#include <algorithm>
#include <iterator>

#include "symbols/module.hpp"

namespace memtrace {
namespace {

// Old versions serve only stacks that are still on their way.
constexpr size_t most_versions = 64;

}  // namespace

void AddressSpaceMap::add(const Mapping& mapping, const Module* module, uint64_t valid_from_ns, uint64_t observed_ns) {
    if (!mapping.is_executable || mapping.start >= mapping.end) return;
    Version version{valid_from_ns, observed_ns, module, mapping.file_offset - mapping.start};
    // A JIT compiler protects its pages piece by piece: offsets from the start of the piece would mean nothing. What it
    // keeps in a file (memfd) it names by address as well.
    if (module->is_jit()) version.offset_minus_start = 0;
    split_at(mapping.start);
    split_at(mapping.end);
    uint64_t at = mapping.start;
    while (at < mapping.end) {
        auto next = segments_.lower_bound(at);
        if (next == segments_.end() || next->first != at) {
            const uint64_t gap_end = next == segments_.end() ? mapping.end : std::min(next->first, mapping.end);
            next = segments_.emplace_hint(next, at, Segment{gap_end, {}});
        }
        add_version(next->second, version);
        at = next->second.end;
    }
}

void AddressSpaceMap::split_at(uint64_t address) {
    auto after = segments_.upper_bound(address);
    if (after == segments_.begin()) return;
    auto segment = std::prev(after);
    if (segment->first == address || segment->second.end <= address) return;
    Segment upper = segment->second;
    segment->second.end = address;
    segments_.emplace_hint(after, address, std::move(upper));
}

void AddressSpaceMap::add_version(Segment& segment, Version version) {
    auto& versions = segment.versions;
    if (!versions.empty()) {
        Version& newest = versions.back();
        if (newest.module == version.module && newest.offset_minus_start == version.offset_minus_start) {
            newest.observed_ns = std::max(newest.observed_ns, version.observed_ns);
            if (versions.size() == 1) newest.valid_from_ns = std::min(newest.valid_from_ns, version.valid_from_ns);
            return;
        }
        if (newest.observed_ns >= version.observed_ns) return;
        version.valid_from_ns = std::max(version.valid_from_ns, newest.observed_ns);
    }
    if (versions.size() == most_versions) versions.erase(versions.begin());
    versions.push_back(version);
}

std::optional<CodeLocation> AddressSpaceMap::find(uint64_t address, uint64_t time_ns) const {
    const auto after = segments_.upper_bound(address);
    if (after == segments_.begin()) return std::nullopt;
    const Segment& segment = std::prev(after)->second;
    if (segment.end <= address) return std::nullopt;
    const auto& versions = segment.versions;
    const auto version = std::find_if(versions.rbegin(), versions.rend(),
                                      [&](const Version& candidate) { return candidate.valid_from_ns <= time_ns; });
    if (version == versions.rend()) return std::nullopt;
    return CodeLocation{version->module, address + version->offset_minus_start};
}

AddressSpaceMap AddressSpaceMap::seen_after(uint64_t time_ns) const {
    AddressSpaceMap seen;
    for (const auto& [start, segment] : segments_) {
        Segment kept{segment.end, {}};
        std::ranges::copy_if(segment.versions, std::back_inserter(kept.versions),
                             [&](const Version& version) { return version.observed_ns > time_ns; });
        if (!kept.versions.empty()) seen.segments_.emplace_hint(seen.segments_.end(), start, std::move(kept));
    }
    return seen;
}

}  // namespace memtrace
