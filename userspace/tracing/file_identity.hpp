// Which file is it, as the kernel sees it? Probes are set on inodes; stat() shows other numbers on overlay and btrfs
// file systems, and a file that seems to be two would be probed twice. Uses base and processes.
#pragma once

#include <cstdint>
#include <tuple>

#include "base/result.hpp"
#include "processes/mappings.hpp"

namespace memtrace {

/// Device and inode as /proc/PID/maps shows them.
struct FileIdentity {
    uint64_t device = 0;
    uint64_t inode = 0;
    friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
    friend bool operator<(const FileIdentity& left, const FileIdentity& right) {
        return std::tie(left.device, left.inode) < std::tie(right.device, right.inode);
    }
};

inline FileIdentity identity_of(const Mapping& mapping) {
    return {mapping.device, mapping.inode};
}

/// Identity of an open file that no target has mapped yet: it is mapped here for a moment and looked up.
Result<FileIdentity> identity_of_open_file(int fd);

}  // namespace memtrace
