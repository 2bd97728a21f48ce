// What a live session waits for: signals, ticks, and readable descriptors. Uses base only.
#pragma once

#include <sys/signalfd.h>

#include <cstdint>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace memtrace {

/// What woke the loop; several at once.
struct Wakeup {
    std::vector<signalfd_siginfo> signals;
    uint64_t ticks = 0;  // intervals that have passed since the last one
    bool has_events = false;
};

/// Blocks the signals that a session handles as long as it exists. One at a time; for one thread.
class EventLoop {
  public:
    /// INT, TERM, USR1, USR2 and CHLD are blocked from here on and come as Wakeup::signals; PIPE is ignored.
    static Result<EventLoop> open();

    /// Wakes the loop when `fd` is readable; it stays the caller's.
    Result<void> watch(int fd);
    /// A tick every `interval_ns`, the first after one interval.
    Result<void> start_ticks(uint64_t interval_ns);
    /// Waits for the next thing to do, `timeout_ms` at most (-1: for ever).
    Wakeup wait(int timeout_ms = -1);

  private:
    EventLoop(Fd epoll, Fd signals, Fd timer)
        : epoll_(std::move(epoll)), signals_(std::move(signals)), timer_(std::move(timer)) {}

    Fd epoll_;
    Fd signals_;
    Fd timer_;
};

}  // namespace memtrace
