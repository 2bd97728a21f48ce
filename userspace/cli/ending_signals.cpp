#include "cli/ending_signals.hpp"

#include <csignal>
#include <ctime>

namespace memtrace {
namespace {

sigset_t ending_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    return signals;
}

}  // namespace

void hold_ending_signals() {
    const sigset_t signals = ending_signals();
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

bool wait_without_signal(uint64_t duration_ns) {
    const sigset_t signals = ending_signals();
    const timespec duration{.tv_sec = static_cast<time_t>(duration_ns / 1'000'000'000),
                            .tv_nsec = static_cast<long>(duration_ns % 1'000'000'000)};
    return sigtimedwait(&signals, nullptr, &duration) < 0;
}

}  // namespace memtrace
