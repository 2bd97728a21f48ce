// One perf event of one cpu and its ring buffer. Uses base and the kernel's perf ABI; for mapping_events only.
#pragma once

#include <linux/perf_event.h>

#include <cstddef>
#include <memory>
#include <span>
#include <variant>

#include "base/fd.hpp"
#include "processes/mapping_events.hpp"

namespace memtrace {

class PerfRing {
  public:
    /// On `cpu`; or the errno of the call that failed (ENODEV, EINVAL: no such cpu or offline).
    static std::variant<std::unique_ptr<PerfRing>, int> open(int cpu);
    PerfRing(const PerfRing&) = delete;
    PerfRing& operator=(const PerfRing&) = delete;
    ~PerfRing();

    int fd() const { return fd_.get(); }
    /// Appends what is there to `batch` and gives the room back to the kernel.
    void read(MappingBatch& batch);

  private:
    PerfRing(Fd fd, perf_event_mmap_page* page, std::span<const std::byte> data)
        : fd_(std::move(fd)), page_(page), data_(data) {}

    Fd fd_;
    perf_event_mmap_page* page_;
    std::span<const std::byte> data_;
};

}  // namespace memtrace
