// Programs at the tracepoints of system calls that change mappings. Uses libbpf.
#pragma once

#include <cstdint>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"

struct bpf_program;

namespace memtrace {

/// Tracepoints that are attached; they go with the object. A program for entries, one for exits.
class SystemCallProbes {
  public:
    /// What gives back is attached first, and the exit of a call before its entry. Errors: not_privileged,
    /// kernel_lacks_feature. Source: tracefs, events/syscalls (CONFIG_FTRACE_SYSCALLS); perf_event_open(2).
    static Result<SystemCallProbes> attach(const bpf_program* on_entry, const bpf_program* on_exit);

    SystemCallProbes(SystemCallProbes&&) noexcept = default;
    SystemCallProbes& operator=(SystemCallProbes&&) noexcept = default;
    ~SystemCallProbes() = default;

  private:
    SystemCallProbes() = default;

    std::vector<Fd> events_;
    std::vector<Fd> links_;  // go before their events
};

/// How long a system call takes that does next to nothing, in nanoseconds, at its quickest.
uint64_t time_of_system_call_ns();

}  // namespace memtrace
