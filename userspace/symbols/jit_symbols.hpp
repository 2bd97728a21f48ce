// Names for the code that one process has compiled itself, from perf's map and jitdump files. Uses base and processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "symbols/jit_files.hpp"
#include "symbols/jit_names.hpp"

namespace memtrace {

/// The files stay open, so that names can be had after the process has ended. For one thread.
class JitSymbols {
  public:
    /// Opens /tmp/perf-PID.map of `pid`, in its own file system and with the pid of its own namespace, if it is there,
    /// belongs to root or to the user of the process, and is not open yet.
    void open_perf_map(pid_t pid);
    /// `fd` is what an executable mapping named jit-PID.dump shows: the way in which a process tells where its jitdump
    /// is. Duplicated.
    void add_jit_dump(int fd);
    /// True for the name of a jitdump file.
    static bool is_jit_dump(const std::string& path);

    struct Function {
        std::string name;  // printable, demangled where it is a linkage name
        uint64_t start = 0;
    };
    /// None if nobody has named the code at `address`. Files that have grown are read on when it is not known.
    std::optional<Function> find(uint64_t address);

  private:
    bool read_on();

    std::optional<GrowingFile> perf_map_;
    std::vector<GrowingFile> jit_dumps_;
    std::vector<std::pair<uint64_t, uint64_t>> jit_dump_files_;  // device, inode
    JitNames names_;
};

}  // namespace memtrace
