// What one hit of a probe costs on this machine before any program does anything: measured on this process itself.
#pragma once

#include "base/result.hpp"
#include "kernel/links.hpp"

namespace memtrace {

/// Nanoseconds of one hit with a program that returns at once, beyond the call itself.
struct TrapPrice {
    double emulated_ns = 0;  // on an instruction that the kernel emulates
    double stepped_ns = 0;   // ... that it steps
    double return_ns = 0;    // of the return probe, on top of the entry

    double entry_ns(bool is_emulated) const { return is_emulated ? emulated_ns : stepped_ns; }
};

/// Attaches to functions of this process only, calls them a few hundred times, detaches: some 100 ms, most of them in
/// the kernel's detaching. Errors: not_privileged, kernel_lacks_feature.
Result<TrapPrice> measure_trap_price(AttachRung rung);

}  // namespace memtrace
