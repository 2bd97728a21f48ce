// The short stream beside the slow ones: children of targets that wait for their probes. A thread of its own may read
// it while another one drains the session's events.
#pragma once

#include <functional>
#include <memory>

#include "base/result.hpp"
#include "memtrace/abi.h"

struct ring_buffer;

namespace memtrace {

/// For one thread.
class ForkNotices {
  public:
    using Handler = std::function<void(const mt_fork_notice&)>;

    /// Of the map `map_fd`, which must outlive the object; see Session::open_fork_notices.
    static Result<std::unique_ptr<ForkNotices>> open(int map_fd, Handler handler);
    ~ForkNotices();
    ForkNotices(const ForkNotices&) = delete;
    ForkNotices& operator=(const ForkNotices&) = delete;

    /// Readable when notices wait.
    int fd() const;
    /// Hands those that wait to the handler, oldest first.
    void drain();

  private:
    explicit ForkNotices(Handler handler) : handler_(std::move(handler)) {}
    struct Deleter {
        void operator()(ring_buffer* ring) const;
    };

    Handler handler_;
    std::unique_ptr<ring_buffer, Deleter> ring_;
};

}  // namespace memtrace
