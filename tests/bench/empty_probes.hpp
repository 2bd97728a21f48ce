// The floor: probes at memtrace's places with programs that return at once. Uses userspace/probes and userspace/kernel.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "kernel/links.hpp"

struct bench_empty_bpf;

namespace memtrace {

class EmptyProbes {
  public:
    /// On every function of the table that `files` define, for the process `pid`.
    static Result<std::unique_ptr<EmptyProbes>> attach(AttachRung rung, const std::vector<std::string>& files,
                                                       pid_t pid);
    ~EmptyProbes();
    EmptyProbes(const EmptyProbes&) = delete;
    EmptyProbes& operator=(const EmptyProbes&) = delete;

    /// How many there are, and how long the kernel took to attach them.
    size_t probe_count() const { return probe_count_; }
    double attach_ms() const { return attach_ms_; }
    void detach() { FileProbes::detach(std::exchange(probes_, {})); }

  private:
    struct SkeletonDeleter {
        void operator()(bench_empty_bpf* skeleton) const;
    };
    EmptyProbes();
    Result<void> load(AttachRung rung);
    Result<void> attach_file(AttachRung rung, const std::string& path, pid_t pid);

    std::unique_ptr<bench_empty_bpf, SkeletonDeleter> skeleton_;
    std::vector<FileProbes> probes_;
    size_t probe_count_ = 0;
    double attach_ms_ = 0;
};

}  // namespace memtrace
