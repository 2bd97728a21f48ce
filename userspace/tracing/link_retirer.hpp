// Closes links beside the main loop: each close waits for the kernel (some 80 ms), and what waits together waits once.
// Uses kernel.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "kernel/links.hpp"

namespace memtrace {

/// Thread-safe. The session of the links must outlive it.
class LinkRetirer {
  public:
    LinkRetirer() = default;
    LinkRetirer(const LinkRetirer&) = delete;
    LinkRetirer& operator=(const LinkRetirer&) = delete;
    /// Returns when everything is closed.
    ~LinkRetirer();

    /// Closes `probes` after `delay`, at the latest at the object's end; then `open_probes` is one less.
    void retire(FileProbes probes, std::shared_ptr<std::atomic<size_t>> open_probes,
                std::chrono::milliseconds delay = {});

  private:
    struct Retired {
        FileProbes probes;
        std::shared_ptr<std::atomic<size_t>> open_probes;
        std::chrono::steady_clock::time_point when;
    };
    void close_links();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Retired> waiting_;
    size_t closing_ = 0;
    bool is_ending_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace memtrace
