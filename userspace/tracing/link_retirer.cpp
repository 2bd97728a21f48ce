#include "tracing/link_retirer.hpp"

#include <utility>

#include "base/thread.hpp"

namespace memtrace {
namespace {

constexpr size_t most_threads = 8;

}  // namespace

LinkRetirer::~LinkRetirer() {
    {
        const std::lock_guard lock(mutex_);
        is_ending_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_)
        thread.join();
}

void LinkRetirer::retire(FileProbes probes, std::shared_ptr<std::atomic<size_t>> open_probes,
                         std::chrono::milliseconds delay) {
    std::unique_lock lock(mutex_);
    if (waiting_.size() + closing_ >= threads_.size() && threads_.size() < most_threads)
        if (auto thread = start_thread([this] { close_links(); })) threads_.push_back(std::move(*thread));
    if (threads_.empty()) {
        lock.unlock();
        { const FileProbes closed = std::move(probes); }
        --*open_probes;
        return;
    }
    waiting_.push_back({std::move(probes), std::move(open_probes), std::chrono::steady_clock::now() + delay});
    changed_.notify_one();
}

void LinkRetirer::close_links() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return is_ending_ || !waiting_.empty(); });
        if (waiting_.empty()) return;
        Retired retired = std::move(waiting_.front());
        waiting_.pop_front();
        ++closing_;
        changed_.wait_until(lock, retired.when, [&] { return is_ending_; });
        lock.unlock();
        { const FileProbes closed = std::move(retired.probes); }
        --*retired.open_probes;
        lock.lock();
        --closing_;
    }
}

}  // namespace memtrace
