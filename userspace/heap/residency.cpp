#include "heap/residency.hpp"

#include <algorithm>
#include <numeric>

namespace memtrace {
namespace {

MemoryKind kind_of(const KnownRange& range) {
    if (range.use == MappingUse::allocator) return MemoryKind::heap;
    return range.use == MappingUse::stack ? MemoryKind::stacks : MemoryKind::mappings;
}

/// `bytes` * part / whole without overflow.
uint64_t share_of(uint64_t size_bytes, uint64_t part, uint64_t whole) {
    if (whole == 0) return 0;
    return static_cast<uint64_t>(static_cast<double>(size_bytes) * static_cast<double>(part) /
                                 static_cast<double>(whole));
}

/// The first of `ranges` (by address, disjoint) that ends above `address`.
template <typename Range>
typename std::span<const Range>::iterator first_behind(std::span<const Range> ranges, uint64_t address) {
    return std::ranges::upper_bound(ranges, address, {}, &Range::end);
}

struct Part {
    uint64_t start = 0;
    uint64_t end = 0;
    MemoryKind kind = MemoryKind::unknown;
};

/// Appends [start, end), to the part before where that is of the same kind.
void append(std::vector<Part>& parts, const Part& part) {
    if (part.start >= part.end) return;
    if (!parts.empty() && parts.back().end == part.start && parts.back().kind == part.kind)
        parts.back().end = part.end;
    else
        parts.push_back(part);
}

/// [start, end) by what is known of it from before; the rest is of kind `rest`.
void append_earlier(std::vector<Part>& parts, std::span<const EarlierRange> earlier, Part rest) {
    for (auto range = first_behind(earlier, rest.start); range != earlier.end() && range->start < rest.end; ++range) {
        append(parts, {rest.start, std::max(rest.start, range->start), rest.kind});
        rest.start = std::max(rest.start, range->start);
        append(parts, {rest.start, std::min(rest.end, range->end), range->kind});
        rest.start = std::min(rest.end, range->end);
    }
    append(parts, rest);
}

std::vector<Part> parts_of(const ResidentRange& range, std::span<const KnownRange> known,
                           std::span<const EarlierRange> earlier) {
    std::vector<Part> parts;
    uint64_t start = range.start;
    for (auto owned = first_behind(known, start); owned != known.end() && owned->start < range.end; ++owned) {
        const uint64_t from = std::max(start, owned->start);
        append_earlier(parts, earlier, {start, from, range.kind});
        start = std::min(range.end, owned->end);
        append(parts, {from, start, kind_of(*owned)});
    }
    append_earlier(parts, earlier, {start, range.end, range.kind});
    return parts;
}

bool may_be_of_many(MemoryKind kind) {
    return kind == MemoryKind::heap || kind == MemoryKind::unknown;
}

}  // namespace

uint64_t MemoryByKind::rss_sum() const {
    return std::accumulate(rss_bytes.begin(), rss_bytes.end(), uint64_t{0});
}

uint64_t MemoryByKind::pss_sum() const {
    return std::accumulate(pss_bytes.begin(), pss_bytes.end(), uint64_t{0});
}

void MemoryByKind::add(MemoryKind kind, uint64_t rss, uint64_t pss) {
    rss_bytes[index_of(kind)] += rss;
    pss_bytes[index_of(kind)] += pss;
}

MemoryByKind& MemoryByKind::operator+=(const MemoryByKind& other) {
    for (size_t kind = 0; kind < memory_kinds; ++kind) {
        rss_bytes[kind] += other.rss_bytes[kind];
        pss_bytes[kind] += other.pss_bytes[kind];
    }
    return *this;
}

EarlierMemory::EarlierMemory(std::span<const ResidentRange> ranges) {
    for (const ResidentRange& range : ranges)
        if (may_be_of_many(range.kind))
            ranges_.push_back({range.start, range.end, range.rss_bytes, range.pss_bytes,
                               range.kind == MemoryKind::unknown ? MemoryKind::earlier : range.kind});
        else
            rest_.add(range.kind, range.rss_bytes, range.pss_bytes);
}

void EarlierMemory::assign(uint64_t start, uint64_t end, MemoryKind kind) {
    std::vector<EarlierRange> ranges;
    for (const EarlierRange& range : ranges_) {
        const uint64_t from = std::max(start, range.start);
        const uint64_t to = std::min(end, range.end);
        if (range.kind != MemoryKind::earlier || from >= to) {
            ranges.push_back(range);
            continue;
        }
        const auto add = [&](uint64_t part_start, uint64_t part_end, MemoryKind part_kind) {
            if (part_start >= part_end) return;
            const uint64_t part = part_end - part_start;
            const uint64_t whole = range.end - range.start;
            ranges.push_back({part_start, part_end, share_of(range.rss_bytes, part, whole),
                              share_of(range.pss_bytes, part, whole), part_kind});
        };
        add(range.start, from, range.kind);
        add(from, to, kind);
        add(to, range.end, range.kind);
    }
    ranges_ = std::move(ranges);
}

void EarlierMemory::assign_to_heap(std::span<const uint64_t> addresses) {
    for (const uint64_t address : addresses) {
        const auto range = std::ranges::upper_bound(ranges_, address, {}, &EarlierRange::end);
        if (range != ranges_.end() && range->start <= address && range->kind == MemoryKind::earlier)
            range->kind = MemoryKind::heap;
    }
}

EarlierMemory::EarlierMemory(const EarlierMemory& parent, const MemoryByKind& then) : rest_(then) {
    for (const EarlierRange& range : parent.ranges_)
        ranges_.push_back({range.start, range.end, 0, 0, range.kind});
}

MemoryByKind EarlierMemory::sums() const {
    MemoryByKind sums = rest_;
    for (const EarlierRange& range : ranges_)
        sums.add(range.kind, range.rss_bytes, range.pss_bytes);
    return sums;
}

MemoryByKind split_memory(std::span<const ResidentRange> now, std::span<const KnownRange> known,
                          std::span<const EarlierRange> earlier, const ResidentBytes& resident) {
    MemoryByKind memory;
    for (const ResidentRange& range : now) {
        if (range.rss_bytes == 0) continue;
        if (!may_be_of_many(range.kind)) {
            memory.add(range.kind, range.rss_bytes, range.pss_bytes);
            continue;
        }
        const std::vector<Part> parts = parts_of(range, known, earlier);
        uint64_t left_bytes = range.rss_bytes;
        uint64_t left_pss_bytes = range.pss_bytes;
        for (const Part& part : parts) {
            // What changed between the two readings, and pages of zeros, which are in no Rss, go to the last part.
            const bool is_last = &part == &parts.back();
            const uint64_t rss = is_last ? left_bytes : std::min(left_bytes, resident(part.start, part.end));
            const uint64_t pss = is_last ? left_pss_bytes : share_of(range.pss_bytes, rss, range.rss_bytes);
            memory.add(part.kind, rss, std::min(pss, left_pss_bytes));
            left_bytes -= rss;
            left_pss_bytes -= std::min(pss, left_pss_bytes);
        }
    }
    return memory;
}

}  // namespace memtrace
