// Snapshots of several processes, for the tests of their roll-up.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "heap/history.hpp"

namespace memtrace::test {

inline ProcessIdentity identity(pid_t pid, pid_t parent = 0, std::string exe = "a", std::string cgroup = "/") {
    ProcessIdentity result;
    result.pid = pid;
    result.parent = parent;
    result.exe = std::move(exe);
    result.cgroup = std::move(cgroup);
    return result;
}

inline AddressSpace space(uint32_t owner, pid_t pid, uint64_t first_seen_ns, uint64_t ended_ns = 0) {
    AddressSpace result;
    result.owner = owner;
    result.pid = pid;
    result.first_seen_ns = first_seen_ns;
    result.ended_ns = ended_ns;
    return result;
}

/// Stacks with the same number are the same in every process.
inline Site site(uint32_t index, uint32_t owner, uint64_t stack, SiteTotals totals) {
    Site result{index, owner, 1, MT_SITE_READY, totals, {}};
    result.stack = {stack, stack};
    return result;
}

/// As the tracer does it: by the number of the stack, with a number of its own above those of sites.
class KeptStacks {
  public:
    KeepStack function(const Snapshot& snapshot) {
        return [&](uint32_t index) {
            const auto found = std::ranges::find(snapshot.sites, index, &Site::index);
            if (index >= first) return KeptSite{index, {index - first, index - first}};
            return KeptSite{first + static_cast<uint32_t>(found->stack[0]), found->stack};
        };
    }

  private:
    static constexpr uint32_t first = 1u << 31;
};

}  // namespace memtrace::test
