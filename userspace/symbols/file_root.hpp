// The file system as one process sees it (its root directory and mounts), kept after the process has ended. Uses base
// and processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/fd.hpp"

namespace memtrace {

class FileRoot {
  public:
    /// Directory `root`; an Fd of none stands for a root whose files cannot be reached.
    explicit FileRoot(Fd root) : root_(std::move(root)) {}
    /// The root of memtrace itself.
    static const FileRoot& own();
    /// The root of `pid` at this moment.
    static FileRoot of_process(pid_t pid);

    /// Opens `path` (absolute, as the process sees it) for reading if it is a regular file; symbolic links cannot lead
    /// out of the root. Never blocks on a FIFO.
    Fd open_regular(const std::string& path) const;

  private:
    Fd root_;
};

/// Roots of processes; those that share one get the same. For one thread.
class FileRoots {
  public:
    /// The root of `pid`, while it lives. Never null; FileRoot::own() is handed out where `pid` has the same.
    std::shared_ptr<const FileRoot> root_of(pid_t pid);

  private:
    using Key = std::pair<uint64_t, uint64_t>;  // mount, inode
    std::map<Key, std::shared_ptr<const FileRoot>> roots_;
};

}  // namespace memtrace
