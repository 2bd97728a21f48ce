// A Go program that runs: its code, its table of functions and its memory. Uses processes and probes.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/result.hpp"
#include "probes/elf_file.hpp"
#include "probes/go_program.hpp"
#include "processes/target_memory.hpp"

namespace memtrace {

struct GoProcess {
    TargetMemory memory;
    ElfFile file;
    GoProgram program;
    uint64_t bias = 0;  // address in the process = address in the file + this
};

/// Errors: no_such_target, not_privileged; no_allocator where it is no Go program.
Result<GoProcess> open_go_process(pid_t pid);

/// Whether the process runs a Go program.
bool is_go_process(pid_t pid);

}  // namespace memtrace
