// Where the resident memory of a process is: what the kernel says of its mappings, seen with what is known of who made
// them. Pure; uses include/ and mappings.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "heap/mappings.hpp"

namespace memtrace {

/// What memory is for, as a report splits it.
enum class MemoryKind : uint8_t {
    heap,      // the allocator's: its data segment, its arenas, its large blocks
    mappings,  // the program's own
    stacks,
    files,    // private mappings of files, with the data of programs and libraries
    shared,   // files and memory that are mapped to be shared
    earlier,  // private memory that was there at the first look, and has not said whose it is
    unknown,
};
constexpr size_t memory_kinds = 7;
/// Its place in an array of memory_kinds.
constexpr size_t index_of(MemoryKind kind) {
    return static_cast<size_t>(kind);
}

/// Resident bytes by MemoryKind.
struct MemoryByKind {
    std::array<uint64_t, memory_kinds> rss_bytes{};
    std::array<uint64_t, memory_kinds> pss_bytes{};  // each shared page divided by the number of those that have it

    uint64_t rss_sum() const;
    uint64_t pss_sum() const;
    void add(MemoryKind kind, uint64_t rss, uint64_t pss);
    MemoryByKind& operator+=(const MemoryByKind& other);
};

/// One mapping of the kernel's list. `kind` is what the kernel says of it; private memory of nobody knows whom is
/// unknown, the data segment is heap, and in both it matters who mapped what.
struct ResidentRange {
    uint64_t start = 0;
    uint64_t end = 0;
    uint64_t rss_bytes = 0;
    uint64_t pss_bytes = 0;
    MemoryKind kind = MemoryKind::unknown;
};

/// Private memory that was there when it was looked at for the first time.
struct EarlierRange {
    uint64_t start = 0;
    uint64_t end = 0;
    uint64_t rss_bytes = 0;  // then
    uint64_t pss_bytes = 0;
    MemoryKind kind = MemoryKind::earlier;
};

/// Resident bytes of [start, end), by the page.
using ResidentBytes = std::function<uint64_t(uint64_t start, uint64_t end)>;

/// A process's memory when it was looked at for the first time: growth counts from there. Whose private memory it was
/// may turn out later.
class EarlierMemory {
  public:
    EarlierMemory() = default;
    /// `ranges` by address, of which those that are heap or unknown may still be found to be something else.
    explicit EarlierMemory(std::span<const ResidentRange> ranges);
    /// Of a forked child, which had `then` when it was looked at for the first time, as far as its parent's memory is
    /// known.
    EarlierMemory(const EarlierMemory& parent, const MemoryByKind& then);

    /// What of [start, end) nobody is known to own is of `kind`: its resident bytes are taken to be spread evenly.
    void assign(uint64_t start, uint64_t end, MemoryKind kind);
    /// Ranges of nobody in which one of these addresses lies are of the allocator that gave them out.
    void assign_to_heap(std::span<const uint64_t> addresses);
    MemoryByKind sums() const;
    std::span<const EarlierRange> ranges() const { return ranges_; }

  private:
    MemoryByKind rest_;                 // that cannot be of another kind
    std::vector<EarlierRange> ranges_;  // by address, disjoint
};

/// Splits what is resident now. `known` comes first, then what is known of earlier memory, then what the kernel says.
/// Where one mapping of the kernel is of several kinds (it joins neighbours), `resident` is asked for the parts.
MemoryByKind split_memory(std::span<const ResidentRange> now, std::span<const KnownRange> known,
                          std::span<const EarlierRange> earlier, const ResidentBytes& resident);

}  // namespace memtrace
