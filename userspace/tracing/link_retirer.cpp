#include "tracing/link_retirer.hpp"

#include <signal.h>

namespace memtrace {
namespace {

constexpr size_t most_threads = 8;

/// Signals are the main loop's.
std::thread start_without_signals(auto&& work) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread thread(work);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread;
}

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
    const std::lock_guard lock(mutex_);
    waiting_.push_back({std::move(probes), std::move(open_probes), std::chrono::steady_clock::now() + delay});
    if (waiting_.size() + closing_ > threads_.size() && threads_.size() < most_threads)
        threads_.push_back(start_without_signals([this] { close_links(); }));
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
