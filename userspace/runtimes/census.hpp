// The live objects of a collected heap by type, with no probe at all. Uses the other files of this folder.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "runtimes/collected_process.hpp"

namespace memtrace {

struct TypeCount {
    std::string type;
    uint64_t objects = 0;
    uint64_t size_bytes = 0;  // of all, as the collector rounds them
};

struct HeapCensus {
    CensusFigures figures;
    uint64_t objects = 0;  // also those without a type
    uint64_t size_bytes = 0;
    std::vector<TypeCount> types;  // by bytes, largest first
};

/// As of the heap's last collection. None when a collection was under way: ask again.
std::optional<HeapCensus> count_objects(const BoehmHeap& heap, const ProcessTypes& types);

}  // namespace memtrace
