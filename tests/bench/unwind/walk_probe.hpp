// walk.bpf.c, loaded with the unwind tables of programs and attached to one process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "kernel/unwind_tables.hpp"
#include "unwind/walk_samples.h"

struct bench_walk_bpf;
struct bpf_link;

namespace memtrace {

class WalkProbe {
  public:
    static Result<std::unique_ptr<WalkProbe>> load();
    WalkProbe(const WalkProbe&) = delete;
    ~WalkProbe();

    /// Loads the tables of the program at `path` and of all that it will load.
    Result<void> add_tables_of(const std::string& path);
    /// From now on `pid`'s calls of malloc are walked, the first `kinds` of enum walk_kind in turns.
    Result<void> attach(pid_t pid, uint32_t kinds);
    void detach();
    /// Forgets all samples.
    void clear();
    std::vector<walk_sample> samples(walk_kind kind) const;
    /// Of those since attach: all, and how many ended for another reason than their depth.
    uint64_t walks() const;
    uint64_t walks_broken() const;

  private:
    struct SkeletonDeleter {
        void operator()(bench_walk_bpf* skeleton) const;
    };
    explicit WalkProbe(bench_walk_bpf* skeleton) : skeleton_(skeleton) {}

    std::unique_ptr<bench_walk_bpf, SkeletonDeleter> skeleton_;
    std::unique_ptr<UnwindTables> tables_;
    bpf_link* link_ = nullptr;
};

}  // namespace memtrace
