// What the memory of a process is used for, as its mappings tell. Pure. Uses memory_map.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "processes/memory_map.hpp"

namespace memtrace {

enum class MemoryUse : uint8_t {
    main_heap,  // the brk heap
    arenas,     // of glibc's malloc, for threads
    anonymous,  // other private memory: large blocks, other allocators, the program's own mappings
    gc_heap,    // Go's
    stacks,
    files,   // private mappings of files, with the data of programs and libraries
    shared,  // files and memory that are mapped to be shared
};
constexpr size_t memory_uses = 7;
/// As JSON has it.
std::string_view name_of(MemoryUse use);

struct UseFigures {
    uint64_t rss_bytes = 0;
    uint64_t mapped_bytes = 0;  // touched or not
};
using MemoryByUse = std::array<UseFigures, memory_uses>;

UseFigures sum_of(const MemoryByUse& memory);

/// Part of the address space.
struct AddressRange {
    uint64_t begin = 0;
    uint64_t end = 0;

    bool contains(uint64_t address) const { return address >= begin && address < end; }
};

/// What is known of a process beside its mappings.
struct KnownUses {
    std::span<const uint64_t> stack_pointers;  // of its threads
    std::span<const AddressRange> arenas;      // disjoint
    bool is_go = false;
};

/// The sums over the uses are those over the mappings. Where a mapping is only in part an arena's (the kernel joins
/// neighbours), `resident_bytes` is asked for that part.
MemoryByUse split_by_use(std::span<const ResidentMapping> mappings, const KnownUses& known,
                         const std::function<uint64_t(AddressRange)>& resident_bytes);

}  // namespace memtrace
