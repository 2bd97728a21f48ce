// A child process of the test that does one step after the other when told. It is forked, so a step is a function of
// the test itself. For the tests of this folder.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "base/fd.hpp"

namespace memtrace::test {

/// Memory that test and target share: what a step wants to tell or to be told.
struct Shared {
    static constexpr uint32_t max_blocks = 4096;
    struct Block {
        uint64_t address;
        uint64_t size_bytes;
    };

    std::array<std::atomic<uint64_t>, 8> numbers{};
    std::atomic<uint32_t> block_count{0};
    std::array<Block, max_blocks> blocks{};

    /// Notes a block that the target holds. Thread-safe.
    void hold(void* block, uint64_t size_bytes);
};

/// Runs in the target. Captures nothing.
using Step = void (*)(Shared& shared);

/// The destructor kills and reaps the target. Whatever goes wrong throws std::runtime_error, which fails the test.
class TargetProcess {
  public:
    TargetProcess();
    TargetProcess(const TargetProcess&) = delete;
    TargetProcess& operator=(const TargetProcess&) = delete;
    ~TargetProcess();

    pid_t pid() const { return pid_; }
    Shared& shared() { return *shared_; }
    /// start() and finish().
    void run(Step step);
    void start(Step step);
    void finish();
    /// Lets the target end, or do a step that ends it; its status as wait(2) reports it.
    int wait_for_end(Step last_step);

  private:
    Shared* shared_;
    pid_t pid_ = -1;
    Fd orders_;
    Fd answers_;
};

}  // namespace memtrace::test
