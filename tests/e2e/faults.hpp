// A program one of whose system calls fails, by ptrace: the test stands between it and the kernel until then, and lets
// it go afterwards. Only its first thread is looked at, from the entry of the program on (the loader is not ours).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace memtrace::e2e {

struct SystemCall {
    uint64_t index = 0;  // 1: the first one of the program
    long number = 0;     // asm/unistd_64.h
    uint64_t first_argument = 0;
};

struct FaultyRun {
    bool hangs = false;  // it did not end within 10 s after the fault
    int status = 0;      // 128 + n: signal n ended it
    std::string output;
    std::string errors;
    uint64_t calls = 0;               // that were seen
    std::optional<SystemCall> fault;  // the call that failed; none: it ended before
};

/// The errno of the call that is to fail, 0 for one that is not.
using ChooseFault = std::function<int(const SystemCall&)>;

enum class Faults { one, all };  // that were chosen

FaultyRun run_with_fault(const std::vector<std::string>& arguments, const ChooseFault& choose,
                         Faults faults = Faults::one);

}  // namespace memtrace::e2e
