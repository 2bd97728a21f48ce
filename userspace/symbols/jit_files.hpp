// The two files in which just-in-time compilers tell profilers what code they have made. Both only grow while their
// process runs, and are read on from where the last reading ended. Written by the target: nothing in them is trusted.
// Uses base.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/fd.hpp"
#include "symbols/jit_names.hpp"

namespace memtrace {

/// A file that is read piece by piece while another process writes it.
class GrowingFile {
  public:
    explicit GrowingFile(Fd fd) : fd_(std::move(fd)) {}
    /// True when there is something behind `position`. A file that became shorter was begun anew: then `position` is
    /// set to 0.
    bool has_more();
    /// At most 1 MB from `position` on; empty at the end.
    std::vector<char> piece() const;

    /// Adds to what the file has cost and tells whether that is below `most`: hostile files need not end.
    bool spend(uint64_t cost, uint64_t most) { return (spent_ += cost) < most; }
    /// Nothing more is read.
    void give_up() { fd_.reset(); }

    int fd() const { return fd_.get(); }
    uint64_t position = 0;

  private:
    Fd fd_;
    uint64_t spent_ = 0;
};

/// perf's map (linux/tools/perf/Documentation/jit-interface.txt): lines "START SIZE NAME", hexadecimal. Adds the whole
/// lines that are new; others than such lines are passed over.
void read_perf_map(GrowingFile& file, JitNames& names);

/// perf's jitdump (linux/tools/perf/Documentation/jitdump-specification.txt), JIT_CODE_LOAD and JIT_CODE_MOVE; of the
/// host's byte order only. Adds the whole records that are new; stops for good at one that cannot be.
void read_jit_dump(GrowingFile& file, JitNames& names);

}  // namespace memtrace
