// The preloaded second counter (workloads/counting_preload.h) as a test sees it.
#pragma once

#include <sys/types.h>

#include <filesystem>

#include "e2e/workload.hpp"
#include "workloads/counting_preload.h"

namespace memtrace::e2e {

/// The figures that the counter of one process shares.
class SecondCounter {
  public:
    explicit SecondCounter(const std::filesystem::path& file);
    SecondCounter(SecondCounter&& other) noexcept : figures_(other.figures_) { other.figures_ = nullptr; }
    SecondCounter(const SecondCounter&) = delete;
    SecondCounter& operator=(const SecondCounter&) = delete;
    ~SecondCounter();

    void start_window();
    counting_figures figures() const { return *figures_; }

  private:
    counting_figures* figures_;
};

/// `report` is of the process and the window of `expected`, and complete.
void check_equal(const counting_figures& expected, const Json& report);

/// Its only thread waits in a system call: state S twice with the same count of switches.
void wait_until_quiet(pid_t pid);

}  // namespace memtrace::e2e
