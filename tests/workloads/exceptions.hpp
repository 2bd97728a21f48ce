// What an std::bad_alloc costs, for workloads whose operator new fails.
#pragma once

#include <new>

#include "workload.h"

/// What libstdc++ asks malloc for when it throws an std::bad_alloc: the object behind its own header, which is 128
/// bytes on x86-64 (struct __cxa_refcounted_exception).
constexpr size_t exception_bytes = 128 + sizeof(std::bad_alloc);

/// libstdc++ sets up its state for exceptions at the first throw: call it before `ready`.
inline void throw_the_first_exception() {
    try {
        throw std::bad_alloc();
    } catch (const std::bad_alloc&) {
    }
}

/// Notes an exception that left at most `left_calls` allocator functions.
inline void note_exception_thrown_and_caught(uint64_t left_calls) {
    site_truth* site = truth_site("__cxa_allocate_exception");
    truth_allocated(site, exception_bytes);
    truth_freed(site, exception_bytes);
    truth_abandoned(left_calls);
}
