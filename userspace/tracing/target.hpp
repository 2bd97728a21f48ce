// One process that is traced: plain data. Uses processes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "processes/mappings.hpp"
#include "processes/memory_use.hpp"
#include "processes/process.hpp"

namespace memtrace {

/// Code of a file that defines heap functions.
struct AllocatorMapping {
    Mapping mapping;
    bool has_collector = false;  // it collects garbage
    bool is_go = false;          // it is a Go program
    bool has_only_heap = false;  // what the file maps for itself is memory of its allocator
    /// As file offsets: what is mapped there by system calls is memory of the allocator.
    std::vector<std::pair<uint64_t, uint64_t>> allocator_code;

    bool is_allocator_code(uint64_t address) const {
        const uint64_t offset = address - mapping.start + mapping.file_offset;
        const auto next = std::ranges::upper_bound(allocator_code, offset, {}, &std::pair<uint64_t, uint64_t>::second);
        return next != allocator_code.end() && next->first <= offset;
    }
};

/// One traced process.
struct Target {
    ProcessInfo process;
    std::set<std::string> families;  // of allocators that were found
    std::vector<AllocatorMapping> allocator_mappings;
    bool has_mapping_functions = false;          // its files have functions that change mappings, and these are probed
    std::optional<AddressRange> dynamic_linker;  // code; empty: it has none; none: not looked for yet
    std::vector<uint32_t> owners;                // its address spaces, oldest first
    std::optional<uint64_t> last_rss_bytes;
    std::optional<uint32_t> exit_code;  // as wait(2) reports it, once it has ended
    uint64_t exited_ns = 0;             // CLOCK_MONOTONIC

    pid_t forked_from = 0;              // whose memory its present address space is a copy of; 0: of nobody's
    bool is_found_later = false;        // it was no target when tracing began: what follows is known
    bool since_birth = false;           // its present address space is traced from its first allocation
    uint64_t window_from_ns = 0;        // when its late allocator was mapped
    std::optional<uint64_t> window_ns;  // ... or from that long after its fork, or after its allocator was mapped
};

}  // namespace memtrace
