#include "kernel/fork_notices.hpp"

#include <bpf/libbpf.h>

#include <cerrno>

namespace memtrace {

void ForkNotices::Deleter::operator()(ring_buffer* ring) const {
    ring_buffer__free(ring);
}

Result<std::unique_ptr<ForkNotices>> ForkNotices::open(int map_fd, Handler handler) {
    std::unique_ptr<ForkNotices> notices(new ForkNotices(std::move(handler)));
    const auto callback = [](void* context, void* data, size_t) {
        static_cast<ForkNotices*>(context)->handler_(*static_cast<const mt_fork_notice*>(data));
        return 0;
    };
    notices->ring_.reset(ring_buffer__new(map_fd, callback, notices.get(), nullptr));
    if (!notices->ring_) return Error{"cannot open the ring of forks", errno_text(errno)};
    return notices;
}

ForkNotices::~ForkNotices() = default;

int ForkNotices::fd() const {
    return ring_buffer__epoll_fd(ring_.get());
}

void ForkNotices::drain() {
    ring_buffer__consume(ring_.get());
}

}  // namespace memtrace
