// The clock of the kernel's events. Uses nothing of the project.
#pragma once

#include <cstdint>
#include <ctime>

namespace memtrace {

/// CLOCK_MONOTONIC in nanoseconds.
inline uint64_t monotonic_now_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace memtrace
