// What the kernel's uprobes do with one instruction (Linux 6.18, arch/x86/kernel/uprobes.c, 64-bit). Pure; looks at the
// encoding only, as the kernel does, and uses nothing of the project.
#pragma once

#include <cstdint>
#include <span>

namespace memtrace {

enum class UprobeHandling : uint8_t {
    emulated,  // in the trap itself
    stepped,   // out of line, with a second trap
    refused,   // the probe cannot be attached
    replaced,  // emulated; after its first hit, since Linux 6.18, a call stands in its place (int3_update, "nop5")
};

/// `instruction` is exactly the bytes of one valid instruction. Older kernels step the nops of 3 bytes and more, which
/// is slower and still right. An encoding that the kernel would emulate wrongly counts as refused.
UprobeHandling uprobe_handling(std::span<const uint8_t> instruction);

}  // namespace memtrace
