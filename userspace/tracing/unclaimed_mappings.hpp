// Mapping events of processes that may turn out to be targets: their first event as a target is still to come. Uses
// processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "processes/mapping_events.hpp"

namespace memtrace {

/// For one thread.
class UnclaimedMappings {
  public:
    /// Events are kept for some seconds, longer than a busy main loop is behind.
    void add(const MappingEvent& event) {
        by_pid_[event.pid].push_back(event);
        if (event.time_ns > swept_ns_ + kept_ns) sweep(event.time_ns);
    }
    /// Those of `pid`, oldest first; they are not kept any longer.
    std::vector<MappingEvent> claim(pid_t pid) {
        auto node = by_pid_.extract(pid);
        return node ? std::move(node.mapped()) : std::vector<MappingEvent>();
    }
    /// What `pid` has mapped, as far as it is kept.
    std::vector<std::string> paths(pid_t pid) const {
        std::vector<std::string> paths;
        if (const auto found = by_pid_.find(pid); found != by_pid_.end())
            for (const MappingEvent& event : found->second)
                paths.push_back(event.mapping.path);
        return paths;
    }

  private:
    static constexpr uint64_t kept_ns = 5'000'000'000;

    void sweep(uint64_t now_ns) {
        std::erase_if(by_pid_, [&](const auto& entry) { return entry.second.back().time_ns + kept_ns < now_ns; });
        swept_ns_ = now_ns;
    }

    std::unordered_map<pid_t, std::vector<MappingEvent>> by_pid_;
    uint64_t swept_ns_ = 0;
};

}  // namespace memtrace
