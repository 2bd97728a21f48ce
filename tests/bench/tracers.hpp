// What is compared: nothing, empty probes at memtrace's places, and memtrace itself as people run it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "bench/target_process.hpp"
#include "kernel/links.hpp"

namespace memtrace {

/// One way to watch the target. attach and detach alternate, attach first.
class Tracer {
  public:
    Tracer() = default;
    Tracer(const Tracer&) = delete;
    Tracer& operator=(const Tracer&) = delete;
    virtual ~Tracer() = default;
    virtual std::string_view name() const = 0;
    virtual Result<void> attach(const TargetProcess& target) = 0;
    /// An Error if it did not see every pair that the target ran meanwhile.
    virtual Result<void> detach(const TargetProcess& target) = 0;
};

/// "none".
std::unique_ptr<Tracer> make_no_tracer();
/// "empty": programs that return at once.
std::unique_ptr<Tracer> make_empty_probes(AttachRung rung);
/// "detached": nothing any more, after a moment of empty probes.
std::unique_ptr<Tracer> make_detached(AttachRung rung);
/// "memtrace", or "sampled" at a distance: the program at `path`.
std::unique_ptr<Tracer> make_memtrace(std::string path, AttachRung rung, std::optional<std::string> sample);

}  // namespace memtrace
