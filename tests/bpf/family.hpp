// A target that forks, and the session that follows its children. For the tests of this folder.
#pragma once

#include <unistd.h>

#include <atomic>
#include <utility>
#include <vector>

#include "bpf/tracing.hpp"

namespace memtrace::test {

/// A family of processes that take steps when told: the target, and what it forks.
class Family {
  public:
    explicit Family(AttachRung rung, const SessionOptions& options = small_tables()) : tracing_(rung, options) {
        tracing_.attach_to_all({malloc_probe, calloc_probe, realloc_probe, free_probe});
        REQUIRE(tracing_.session().add_target(tracing_.target().pid(), MT_TARGET_ARMED, true));
        tracing_.session().arm();
    }

    Tracing& tracing() { return tracing_; }
    Shared& shared() { return tracing_.target().shared(); }
    /// Waits for a fork that was not seen yet, and arms its child; the child's owner.
    uint32_t arm_child() {
        while (forked_.empty()) {
            take_events();
            usleep(200);
        }
        const uint32_t child = forked_.front();
        forked_.erase(forked_.begin());
        tracing_.session().arm_owner(child);
        return child;
    }
    /// Children that were not armed.
    std::vector<uint32_t> take_forked() { return std::exchange(forked_, {}); }
    /// Members that have ended so far.
    uint32_t exits() {
        take_events();
        return exits_;
    }
    /// How many of `owners` were released: a parent is when its children are.
    size_t release_all(const std::vector<uint32_t>& owners) {
        Session& session = tracing_.session();
        size_t released = 0;
        while (true) {
            const std::vector<uint32_t> releasable = session.releasable(owners);
            if (releasable.empty()) return released;
            released += session.release(releasable).address_spaces.size();
        }
    }

  private:
    void take_events() {
        for (const mt_process_event& event : tracing_.drain().processes) {
            if (event.header.type == MT_EVENT_FORK) forked_.push_back(event.header.owner);
            if (event.header.type == MT_EVENT_EXIT) ++exits_;
        }
    }

    Tracing tracing_;
    std::vector<uint32_t> forked_;
    uint32_t exits_ = 0;
};

inline void wait_for(std::atomic<uint64_t>& word, uint64_t value) {
    while (word.load() < value)
        usleep(200);
}

/// Numbers that test and family share: what is greater than 0 has happened, so many times.
enum Word { armed = 0, done = 1, done_by_second = 2, may_end = 3 };

}  // namespace memtrace::test
