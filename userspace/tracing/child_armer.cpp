#include "tracing/child_armer.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/clock.hpp"
#include "base/thread.hpp"

namespace memtrace {
namespace {

// A fork that the other side has not come to by then has no notice: the ring was full.
constexpr uint64_t kept_ns = 10'000'000'000;

/// A child runs and allocates while this thread waits for a cpu. Not allowed: it waits longer.
void hurry() {
    const sched_param lowest_realtime{.sched_priority = 1};
    if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &lowest_realtime) == 0) return;
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), -20);
}

}  // namespace

ChildArmer::~ChildArmer() {
    if (!thread_.joinable()) return;
    eventfd_write(stop_.get(), 1);
    thread_.join();
}

Result<void> ChildArmer::start() {
    auto notices = session_.open_fork_notices([this](const mt_fork_notice& notice) { on_notice(notice); });
    if (!notices) return std::move(notices).error();
    stop_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!stop_) return Error{"cannot arm children at once", errno_text(errno)};
    notices_ = std::move(notices).value();
    auto thread = start_thread([this] { run(); });
    if (!thread) return Error{"cannot arm children at once", errno_text(EAGAIN)};
    thread_ = std::move(*thread);
    return {};
}

void ChildArmer::run() {
    hurry();
    std::array<pollfd, 2> waited = {pollfd{.fd = notices_->fd(), .events = POLLIN, .revents = 0},
                                    pollfd{.fd = stop_.get(), .events = POLLIN, .revents = 0}};
    while (waited[1].revents == 0) {
        if (poll(waited.data(), waited.size(), -1) < 0 && errno != EINTR) return;
        if (waited[0].revents != 0) notices_->drain();
    }
}

void ChildArmer::on_notice(const mt_fork_notice& notice) {
    const std::lock_guard lock(mutex_);
    const auto child = static_cast<pid_t>(notice.tgid);
    if (forks_.erase({notice.time_ns, child}) > 0) return;
    forks_[{notice.time_ns, child}] = arm(static_cast<pid_t>(notice.parent_tgid), child, notice.owner);
}

uint64_t ChildArmer::take(pid_t parent, pid_t child, uint64_t time_ns, uint32_t owner) {
    const std::lock_guard lock(mutex_);
    if (const auto known = forks_.extract({time_ns, child}); known && known.mapped()) {
        // A file of the parent may have been attached since, and what an earlier process of this id had was taken away.
        const bool was_incomplete = links_.attach_child(parent, child);
        return was_incomplete ? monotonic_now_ns() : *known.mapped();
    }
    while (!forks_.empty() && forks_.begin()->first.first + kept_ns < time_ns)
        forks_.erase(forks_.begin());
    forks_[{time_ns, child}] = std::nullopt;
    return arm(parent, child, owner);
}

uint64_t ChildArmer::arm(pid_t parent, pid_t child, uint32_t owner) {
    // A child that has ended already has nothing to attach to.
    links_.attach_child(parent, child);
    session_.arm_owner(owner);
    return monotonic_now_ns();
}

}  // namespace memtrace
