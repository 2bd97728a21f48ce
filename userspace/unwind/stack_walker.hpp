// Walks a copy of a stack with unwind tables, as bpf/unwind.h walks the stack itself. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "unwind/unwind_table.hpp"

namespace memtrace {

/// The registers of a frame and the stack from its stack pointer up.
struct StackCopy {
    uint64_t pc = 0;  // where to look up the rule: a return address - 1, or where a signal interrupted
    uint64_t stack_pointer = 0;
    uint64_t frame_pointer = 0;
    std::span<const uint8_t> bytes;  // at stack_pointer
};

/// The code at an address of the process.
struct CodeAt {
    const UnwindTable* table = nullptr;  // of every address; null: none, its code is walked by frame pointer
    uint64_t vaddr = 0;                  // of that address in the file
};

enum class WalkEnd : uint8_t {
    thread_start,
    too_many_frames,
    no_cfi,        // nor a frame pointer that leads on
    outside_copy,  // the stack goes on above what was copied
    unsupported,   // CFI that the tables cannot say
    no_progress,   // a frame that is not above the one before
};

/// Appends the callers of the frame to `return_addresses`, up to `max_frames` in all.
WalkEnd walk_stack(const StackCopy& stack, const std::function<CodeAt(uint64_t pc)>& code_at, size_t max_frames,
                   std::vector<uint64_t>& return_addresses);

}  // namespace memtrace
