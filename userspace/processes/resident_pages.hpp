// Which pages of a process are in memory, by /proc/PID/pagemap. Uses base only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace memtrace {

/// What it has looked at it looks at again only after others, so questions should go from low addresses to high ones.
/// For one thread.
class ResidentPages {
  public:
    /// Needs the rights of ptrace(2). Errors: no_such_target, not_privileged.
    static Result<ResidentPages> open(pid_t pid);

    /// Bytes of [begin, end) that are on resident pages.
    uint64_t bytes(uint64_t begin, uint64_t end);
    /// The same of those pages alone that lie in [begin, end) whole.
    uint64_t bytes_of_whole_pages(uint64_t begin, uint64_t end);
    /// Forgets what it has looked at.
    void refresh() { entries_.clear(); }

    static constexpr uint64_t page_bytes = 4096;

  private:
    explicit ResidentPages(Fd fd) : fd_(std::move(fd)) {}
    bool is_resident(uint64_t page);
    void load(uint64_t page);

    Fd fd_;
    uint64_t first_page_ = 0;
    std::vector<uint64_t> entries_;
};

}  // namespace memtrace
