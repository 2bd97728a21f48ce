#include "selftest/workload_image.hpp"

// MEMTRACE_WORKLOAD is the path of the built file, from CMakeLists.txt.
asm(R"(
    .pushsection .rodata
    .balign 16
    memtrace_workload_begin:
    .incbin ")" MEMTRACE_WORKLOAD R"("
    memtrace_workload_end:
    .popsection
)");

extern "C" {
extern const char memtrace_workload_begin[];
extern const char memtrace_workload_end[];
}

namespace memtrace {

std::span<const char> workload_image() {
    return {memtrace_workload_begin, memtrace_workload_end};
}

}  // namespace memtrace
