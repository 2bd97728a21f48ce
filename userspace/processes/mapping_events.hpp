// Executable mappings of all processes as they are made: PERF_RECORD_MMAP2 of one dummy perf event per online cpu. It
// lets libraries that are dlopened be seen at once and processes that have died be named. Uses base and the kernel's
// perf ABI (perf_event_open(2)) only. What the kernel dropped is counted in every batch.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "processes/mappings.hpp"

namespace memtrace {

/// One executable mapping that was made (mmap) or became executable (mprotect).
struct MappingEvent {
    pid_t pid = 0;  // in the reader's pid namespace
    pid_t tid = 0;
    uint64_t time_ns = 0;  // CLOCK_MONOTONIC, after the mapping exists and before any of its code runs
    Mapping mapping;
};

struct MappingBatch {
    std::vector<MappingEvent> events;  // by time
    uint64_t lost = 0;  // events that the kernel dropped, or that could not be read, since the last batch
};

class PerfRing;

/// The open side-band. Move-only, for one thread.
class MappingEvents {
  public:
    /// Opens it on every online cpu. Needs CAP_PERFMON (or kernel.perf_event_paranoid < 1): else not_privileged.
    static Result<MappingEvents> open();
    MappingEvents(MappingEvents&&) noexcept;
    MappingEvents& operator=(MappingEvents&&) noexcept;
    ~MappingEvents();

    /// Readable (poll, epoll) whenever there is something to read. Owned by this object.
    int poll_fd() const { return epoll_.get(); }
    /// Takes what is there, without waiting.
    MappingBatch read();

  private:
    MappingEvents();
    Fd epoll_;
    std::vector<std::unique_ptr<PerfRing>> rings_;
};

/// Parses one whole record of type PERF_RECORD_MMAP2 as MappingEvents asks for it (sample_id of TID and TIME at its
/// end). None when it is malformed. Pure.
std::optional<MappingEvent> parse_mapping_record(std::span<const std::byte> record);

/// Parses the records in ring memory `data` (size a power of two) from `tail` to `head` into `batch`. Records may wrap;
/// a size that cannot be ends the reading and counts as one lost. Pure.
void parse_ring(std::span<const std::byte> data, uint64_t tail, uint64_t head, MappingBatch& batch);

}  // namespace memtrace
