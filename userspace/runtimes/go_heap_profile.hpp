// The heap profile that Go's runtime keeps of its own program: a sample about every 512 KiB, and its end when it is
// collected, by call stack and size, since the program began. Read out of the running process; nothing is stopped or
// probed. Uses processes, probes and go_program.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace memtrace {

/// Objects of one size that one call stack allocated: sampled ones, and what they stand for.
struct GoAllocations {
    uint64_t size_bytes = 0;  // of one
    uint64_t samples = 0;
    uint64_t live_samples = 0;
    double allocations = 0;  // estimates
    double live = 0;
    double live_variance = 0;                 // of `live`
    std::vector<std::string> functions = {};  // from the allocation's caller to the goroutine's start
};

struct GoHeapProfile {
    uint64_t sampled_every_bytes = 0;  // runtime.MemProfileRate
    uint64_t samples = 0;
    std::vector<GoAllocations> allocations = {};
};

/// Errors: no_such_target, not_privileged; no_allocator where it is no Go program; a version whose profile is of
/// another form; MemProfileRate = 0, so that there is no profile.
Result<GoHeapProfile> read_go_heap_profile(pid_t pid);

/// Whether the process runs a Go program.
bool is_go_process(pid_t pid);

}  // namespace memtrace
