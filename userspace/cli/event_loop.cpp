#include "cli/event_loop.hpp"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace memtrace {
namespace {

constexpr uint64_t ns_per_second = 1'000'000'000;

Error loop_error() {
    return {"cannot wait for events", errno_text(errno)};
}

}  // namespace

Result<EventLoop> EventLoop::open() {
    sigset_t handled;
    sigemptyset(&handled);
    for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD})
        sigaddset(&handled, number);
    if (sigprocmask(SIG_BLOCK, &handled, nullptr) != 0) return loop_error();
    signal(SIGPIPE, SIG_IGN);
    EventLoop loop(Fd(epoll_create1(EPOLL_CLOEXEC)), Fd(signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK)),
                   Fd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)));
    if (!loop.epoll_ || !loop.signals_ || !loop.timer_) return loop_error();
    for (const int fd : {loop.signals_.get(), loop.timer_.get()})
        if (auto watched = loop.watch(fd); !watched) return std::move(watched).error();
    return loop;
}

Result<void> EventLoop::watch(int fd) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return loop_error();
    return {};
}

Result<void> EventLoop::start_ticks(uint64_t interval_ns) {
    const timespec interval{.tv_sec = static_cast<time_t>(interval_ns / ns_per_second),
                            .tv_nsec = static_cast<long>(interval_ns % ns_per_second)};
    const itimerspec timer{.it_interval = interval, .it_value = interval};
    if (timerfd_settime(timer_.get(), 0, &timer, nullptr) != 0) return loop_error();
    return {};
}

Wakeup EventLoop::wait(int timeout_ms) {
    Wakeup wakeup;
    std::array<epoll_event, 8> events;
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
    for (int index = 0; index < count; ++index) {
        const int fd = events[static_cast<size_t>(index)].data.fd;
        if (fd != signals_.get() && fd != timer_.get()) wakeup.has_events = true;
    }
    signalfd_siginfo info{};
    while (read(signals_.get(), &info, sizeof info) == sizeof info)
        wakeup.signals.push_back(info);
    uint64_t ticks = 0;
    if (read(timer_.get(), &ticks, sizeof ticks) == sizeof ticks) wakeup.ticks = ticks;
    return wakeup;
}

}  // namespace memtrace
