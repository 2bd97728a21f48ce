// Clocks in nanoseconds.
#pragma once

#include <cstdint>
#include <ctime>

namespace memtrace {

inline uint64_t now_ns(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

/// CLOCK_MONOTONIC, that of the kernel's events. Thread-safe.
inline uint64_t monotonic_now_ns() {
    return now_ns(CLOCK_MONOTONIC);
}

/// CLOCK_REALTIME, since 1970. Thread-safe.
inline int64_t unix_now_ns() {
    return static_cast<int64_t>(now_ns(CLOCK_REALTIME));
}

}  // namespace memtrace
