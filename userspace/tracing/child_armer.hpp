// Gives forked children the probes of their parent in a thread of its own: the main loop may be at work on a report,
// and what a child allocates meanwhile would not be seen. Uses kernel and file_links.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/fd.hpp"
#include "base/inheriting_mutex.hpp"
#include "kernel/fork_notices.hpp"
#include "kernel/session.hpp"
#include "tracing/file_links.hpp"

namespace memtrace {

/// take() is for one thread, the main loop's.
class ChildArmer {
  public:
    /// Both must outlive the object.
    ChildArmer(Session& session, FileLinks& links) : session_(session), links_(links) {}
    /// Ends the thread.
    ~ChildArmer();
    ChildArmer(const ChildArmer&) = delete;
    ChildArmer& operator=(const ChildArmer&) = delete;

    /// Starts the thread, at the highest priority that it may have. Without it children are armed by take().
    Result<void> start();
    /// The main loop has come to the fork of `child`, at `time_ns`, whose owner is `owner`: when this returns, the
    /// child has what `parent` has and is armed. Since when (CLOCK_MONOTONIC).
    uint64_t take(pid_t parent, pid_t child, uint64_t time_ns, uint32_t owner);

  private:
    using Fork = std::pair<uint64_t, pid_t>;  // by time: a pid may be another process's later

    void run();
    void on_notice(const mt_fork_notice& notice);
    uint64_t arm(pid_t parent, pid_t child, uint32_t owner);

    Session& session_;
    FileLinks& links_;
    std::unique_ptr<ForkNotices> notices_;
    Fd stop_;
    InheritingMutex mutex_;
    std::map<Fork, std::optional<uint64_t>> forks_;  // that one side has seen; none: it was the main loop, so let it be
    std::thread thread_;
};

}  // namespace memtrace
