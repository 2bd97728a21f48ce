// INT and TERM as the end of a series of readings, without an event loop. Uses nothing of the project.
#pragma once

#include <cstdint>

namespace memtrace {

/// From now on they wait, and are told by wait_without_signal().
void hold_ending_signals();
/// Waits; false when one of them came, before or meanwhile.
bool wait_without_signal(uint64_t duration_ns);

}  // namespace memtrace
