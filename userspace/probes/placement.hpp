// Where in a function an entry probe goes. Pure; uses Zydis. The kernel checks nothing that is said here: a probe
// inside an instruction corrupts the target, so an offset from here is always the start of an instruction that was
// decoded.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace memtrace {

struct PlacementRules {
    uint32_t argument_registers = 0;  // that must be untouched: bit n-1 is argument n (rdi rsi rdx rcx r8 r9)
    bool null_does_nothing = false;   // may stand behind the `je` of a NULL test of argument 1
};

struct Placement {
    uint64_t offset = 0;       // from the function's first byte
    bool is_emulated = false;  // false: "stepped", each hit costs a second trap
    std::string instruction;   // that carries the probe, AT&T syntax: "push %rbp"
};

/// The first instruction that the kernel emulates (Linux 6.18, arch/x86/kernel/uprobes.c) in the straight line from the
/// function's first byte on which rsp still points to the return address and the argument registers hold the
/// arguments; so a return probe may go there as well. Without one: the first instruction, stepped. Never a 5-byte nop,
/// for which Linux 6.18 puts a call that overwrites what a leaf function keeps below the stack pointer, and leaves a
/// mapping in the target: such nops at the start are passed. None if that leads to no instruction that can carry a
/// probe. `code` is the function's bytes, whole if possible: branches in it are looked at so that no loop or jump can
/// pass a probe without a call, or skip it.
std::optional<Placement> place_probe(std::span<const uint8_t> code, uint64_t function_vaddr,
                                     const PlacementRules& rules);

}  // namespace memtrace
