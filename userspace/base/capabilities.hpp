// Linux capabilities (capabilities(7)): which of them this thread has, and giving up the others. Uses nothing of the
// project but result.hpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace memtrace {

/// Those that memtrace has a use for, by their numbers in linux/capability.h.
enum class Capability : unsigned {
    dac_read_search = 2,
    kill = 5,
    sys_ptrace = 19,
    sys_admin = 21,
    sys_nice = 23,
    perfmon = 38,
    bpf = 39,
    checkpoint_restore = 40,
};

/// "cap_bpf".
std::string_view capability_name(Capability capability);

/// Whether it is effective for this thread.
bool has_capability(Capability capability);

/// "cap_bpf and cap_perfmon": those of `wanted` that this thread does not have; empty when it has all.
std::string missing_capabilities(std::span<const Capability> wanted);

/// The clause that explains a refused access: what of `wanted` is missing, or, when nothing is, what else it can be.
std::string reason_of_refusal(std::span<const Capability> wanted);

/// The way out of a refusal: sudo, or setcap with all that tracing by links needs.
std::string privilege_hint();

/// This thread, and those that it starts from now on, have none but those of `kept` that they had; nor do programs that
/// they start gain any (no_new_privs, bounding set). Other threads stay as they are.
Result<void> keep_only(std::span<const Capability> kept);

}  // namespace memtrace
