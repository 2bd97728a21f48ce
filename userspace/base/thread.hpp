// Threads beside the main loop. Uses the standard library and signals.
#pragma once

#include <signal.h>

#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace memtrace {

/// A thread that takes no signal: they are the main loop's. None where the system gives no thread (EAGAIN); `work` is
/// then the caller's to do.
template <typename Work>
std::optional<std::thread> start_thread(Work work) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::optional<std::thread> thread;
    try {
        thread.emplace(std::move(work));
    } catch (const std::system_error&) {
        thread.reset();
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread;
}

}  // namespace memtrace
