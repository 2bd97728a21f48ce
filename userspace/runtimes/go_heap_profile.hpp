// The heap profile that Go's runtime keeps of its own program: a sample about every 512 KiB, and its end when it is
// collected, by call stack and size, since the program began. Read out of the running process; nothing is stopped or
// probed. Uses processes, probes and go_program.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "runtimes/go_process.hpp"

namespace memtrace {

/// Objects of one size that one call stack allocated: sampled ones, and what they stand for.
struct GoAllocations {
    uint64_t bucket = 0;      // address of the runtime's own record of them, one for a call stack and size
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

/// Where a Go process keeps its heap profile.
class GoHeapReader {
  public:
    /// Errors: a version whose profile is of another form. `go` must outlive the reader.
    static Result<GoHeapReader> open(const GoProcess& go);

    /// runtime.MemProfileRate: 0 is no profile, 1 every object. None where it cannot be read: the process has ended.
    std::optional<uint64_t> sampled_every_bytes() const;
    /// Errors: MemProfileRate = 0, so that there is no profile; one of another form.
    Result<GoHeapProfile> read() const;

  private:
    GoHeapReader(const GoProcess& go, uint64_t head, uint64_t rate) : go_(&go), head_(head), rate_(rate) {}

    const GoProcess* go_;
    uint64_t head_;  // addresses of the variables
    uint64_t rate_;
};

/// An object of `size_bytes` is sampled with this probability (runtime/pprof, scaleHeapSample).
double go_sampling_probability(uint64_t size_bytes, uint64_t rate_bytes);

/// Errors: no_such_target, not_privileged; no_allocator where it is no Go program; those of GoHeapReader.
Result<GoHeapProfile> read_go_heap_profile(pid_t pid);

}  // namespace memtrace
