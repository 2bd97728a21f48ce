#include "probes/uprobe_instructions.hpp"

#include <algorithm>
#include <array>

namespace memtrace {
namespace {

/// The parts of an encoding that uprobes look at; `opcode` begins behind all prefixes.
struct Encoding {
    bool has_operand_size_prefix = false;  // 0x66
    bool has_bad_prefix = false;           // is_prefix_bad(): lock and the segments that 64-bit code ignores
    uint8_t rex = 0;
    std::span<const uint8_t> opcode;
};

Encoding split(std::span<const uint8_t> instruction) {
    Encoding encoding;
    size_t length = 0;
    for (; length < instruction.size(); ++length) {
        const uint8_t byte = instruction[length];
        if (byte == 0x26 || byte == 0x2e || byte == 0x36 || byte == 0x3e || byte == 0xf0)
            encoding.has_bad_prefix = true;
        else if (byte == 0x66)
            encoding.has_operand_size_prefix = true;
        else if (byte != 0x64 && byte != 0x65 && byte != 0x67 && byte != 0xf2 && byte != 0xf3)
            break;
    }
    if (length < instruction.size() && (instruction[length] & 0xf0) == 0x40) encoding.rex = instruction[length++];
    encoding.opcode = instruction.subspan(length);
    return encoding;
}

/// The nop that is as long as a call with a relative target: can_optimize().
constexpr size_t replaced_nop_bytes = 5;

/// x86_nops[length] of arch/x86/include/asm/nops.h; those of more than 8 bytes have a refused prefix.
bool is_kernel_nop(std::span<const uint8_t> instruction) {
    constexpr std::array<std::array<uint8_t, 8>, 6> nops = {{
        {0x0f, 0x1f, 0x00},
        {0x0f, 0x1f, 0x40, 0x00},
        {0x0f, 0x1f, 0x44, 0x00, 0x00},
        {0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00},
        {0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00},
        {0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00},
    }};
    const size_t length = instruction.size();
    return length >= 3 && length <= 8 && std::equal(instruction.begin(), instruction.end(), nops[length - 3].begin());
}

/// jmp and call with a relative target, jcc.
bool is_relative_branch(std::span<const uint8_t> opcode) {
    if (opcode[0] == 0xe8 || opcode[0] == 0xe9 || opcode[0] == 0xeb) return true;
    if (opcode[0] == 0x0f) return opcode.size() > 1 && (opcode[1] & 0xf0) == 0x80;
    return (opcode[0] & 0xf0) == 0x70;
}

/// push of a whole register: the bare opcode, or with REX.B alone.
bool is_emulated_push(const Encoding& encoding, size_t instruction_length) {
    if ((encoding.opcode[0] & 0xf8) != 0x50) return false;
    return instruction_length == 1 || (instruction_length == 2 && encoding.rex == 0x41);
}

/// Instructions that start a function only in code that is no function: int3, int, int1, hlt, syscall, ud2.
bool is_refused_opcode(std::span<const uint8_t> opcode) {
    if (opcode[0] == 0xcc || opcode[0] == 0xcd || opcode[0] == 0xf1 || opcode[0] == 0xf4) return true;
    return opcode[0] == 0x0f && opcode.size() > 1 && (opcode[1] == 0x05 || opcode[1] == 0x0b);
}

}  // namespace

UprobeHandling uprobe_handling(std::span<const uint8_t> instruction) {
    const Encoding encoding = split(instruction);
    if (encoding.opcode.empty() || encoding.has_bad_prefix || is_refused_opcode(encoding.opcode))
        return UprobeHandling::refused;
    if (is_kernel_nop(instruction) && instruction.size() == replaced_nop_bytes) return UprobeHandling::replaced;
    if (is_kernel_nop(instruction) || is_emulated_push(encoding, instruction.size())) return UprobeHandling::emulated;
    if (encoding.opcode[0] == 0x90) {
        // The kernel takes `xchg %r8,%rax` for a nop.
        const bool is_exchange = (encoding.rex & 1) != 0;
        return is_exchange ? UprobeHandling::refused : UprobeHandling::emulated;
    }
    if (!is_relative_branch(encoding.opcode)) return UprobeHandling::stepped;
    return encoding.has_operand_size_prefix ? UprobeHandling::refused : UprobeHandling::emulated;
}

}  // namespace memtrace
