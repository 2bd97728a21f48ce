// Which file's code lies at an address of one address space, now and at an earlier time. Uses base and processes.
// Invariant: segments do not overlap, and a segment's versions are ordered by the time from which they are valid.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "processes/mappings.hpp"

namespace memtrace {

class Module;

/// A place in a file, the same in every process that maps it.
struct CodeLocation {
    const Module* module = nullptr;  // never null when handed out
    uint64_t offset = 0;  // in the file; for code that a process made itself (Module::is_jit) the address itself

    friend bool operator==(const CodeLocation&, const CodeLocation&) = default;
};

/// Executable mappings of one address space. For one thread. Modules must outlive it.
class AddressSpaceMap {
  public:
    /// `mapping` shows `module` from `valid_from_ns` on and was seen at `observed_ns` (CLOCK_MONOTONIC; for an event
    /// both are its time, for a reading of /proc/PID/maps valid_from_ns is the reading before, or 0). Where something
    /// newer was observed already, that stays. Mappings that are not executable are ignored.
    void add(const Mapping& mapping, const Module* module, uint64_t valid_from_ns, uint64_t observed_ns);
    /// What was at `address` at `time_ns`: the newest version that is not younger. None: no code is known there.
    std::optional<CodeLocation> find(uint64_t address, uint64_t time_ns) const;
    /// What was seen later than `time_ns`.
    AddressSpaceMap seen_after(uint64_t time_ns) const;

  private:
    struct Version {
        uint64_t valid_from_ns = 0;
        uint64_t observed_ns = 0;
        const Module* module = nullptr;
        uint64_t offset_minus_start = 0;  // file offset of an address = address + this, modulo 2^64
    };
    struct Segment {
        uint64_t end = 0;
        std::vector<Version> versions;
    };
    void split_at(uint64_t address);
    static void add_version(Segment& segment, Version version);

    std::map<uint64_t, Segment> segments_;  // by start
};

}  // namespace memtrace
