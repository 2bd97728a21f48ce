// One immutable picture of what the kernel side knows, with every counter of loss. Everything behind it (heap, reports,
// formats) works from this alone, without root and without the kernel. Pure data; uses include/ and live_blocks.hpp.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <vector>

#include "heap/live_blocks.hpp"
#include "memtrace/abi.h"

namespace memtrace {

/// Sums of one call site since the attach. live = allocated - freed, in bytes and in blocks.
struct SiteTotals {
    uint64_t allocated_bytes = 0;
    uint64_t allocations = 0;
    uint64_t freed_bytes = 0;
    uint64_t frees = 0;

    uint64_t live_bytes() const { return allocated_bytes - freed_bytes; }
    uint64_t live_blocks() const { return allocations - frees; }
    SiteTotals& operator+=(const SiteTotals& other) {
        allocated_bytes += other.allocated_bytes;
        allocations += other.allocations;
        freed_bytes += other.freed_bytes;
        frees += other.frees;
        return *this;
    }
};

/// What a stack is known by in every process: a hash of its frames' places in their files. First word 0: not known.
using StackHash = std::array<uint64_t, 2>;

/// One call site of one address space. `index` is stable for the whole session.
struct Site {
    uint32_t index = 0;
    uint32_t owner = 0;  // address space
    uint32_t row = 0;    // function, in the table of allocators
    uint32_t flags = 0;  // enum mt_site_flags
    SiteTotals totals;
    StackHash stack{};
    uint64_t kernel_hash = 0;  // first word of what the kernel side knows the stack by
};

/// A block that its owner gave back while it had children that inherited it.
struct Ghost {
    Block block;
    uint32_t forks = 0;  // that the owner had made when it gave the block back
};

/// `owner`, a child, gave back what it may have inherited at `address`.
struct InheritedFree {
    uint32_t owner = 0;
    uint64_t address = 0;
    uint32_t forks = 0;  // that it had made then: those children still have the block
};

/// Objects of one type, size and call site that were allocated in a collected heap.
struct TypedObjects {
    uint32_t site = 0;
    uint32_t type = 0;
    uint64_t size_bytes = 0;  // of one
    uint64_t allocations = 0;
    uint64_t live = 0;  // of them
};

/// One address space; several in a row belong to one process when it calls exec.
struct AddressSpace {
    uint32_t owner = 0;
    pid_t pid = 0;
    uint64_t first_seen_ns = 0;
    uint64_t ended_ns = 0;  // 0 while it lives
    uint32_t exit_code = 0;
    uint32_t parent_owner = 0;  // whose memory fork copied; 0: none that is traced
    uint32_t fork_number = 0;   // of the parent's forks, from 1
    uint64_t forked_ns = 0;     // CLOCK_MONOTONIC
    uint64_t collections = 0;   // of its collected heap: mt_owner.collections and collected_ns
    uint64_t collected_ns = 0;
    std::array<uint64_t, MT_COUNTERS> counters{};  // by enum mt_counter
};

/// How much of the live blocks is read: there can be millions.
enum class BlockDetail {
    none,    // the sums are enough
    births,  // for ages
    whole,
};

/// Smaller blocks are hardly ever left untouched.
constexpr uint64_t large_block_bytes = 128 << 10;

/// All of it at one moment. `sites` holds heap sites and mapping sites; the totals of mapping sites are 0 here, the
/// mapping ledger (heap/mappings.hpp) has them.
struct Snapshot {
    uint64_t time_ns = 0;  // CLOCK_MONOTONIC
    std::vector<AddressSpace> address_spaces;
    std::vector<Site> sites;
    // Every live heap block, those of an ended owner too, until it is released; of a sampled session every sampled one.
    // As the BlockDetail says.
    LiveBlocks blocks;
    // Where allocators have their memory: blocks of at least `large_block_bytes`, and one of 64 slots of the table;
    // none with BlockDetail::none.
    std::vector<Block> landmarks;
    // Those of address spaces that have forked children, which may hold them too. With BlockDetail::none only those
    // that a child may have given back.
    std::vector<Block> inheritable;
    std::vector<Ghost> ghosts;
    std::vector<InheritedFree> inherited_frees;
    std::vector<TypedObjects> typed_objects;
    bool is_sampled = false;  // the sums are estimates: what sampled blocks stand for
};

}  // namespace memtrace
