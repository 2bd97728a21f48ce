#include "probes/placement.hpp"

#include <algorithm>
#include <array>

#include "probes/instructions.hpp"
#include "probes/uprobe_instructions.hpp"

namespace memtrace {
namespace {

/// The straight line from the function's first byte ends at the first place behind it that any branch of the function
/// leads to. Branches to the first byte are left out: there is no earlier place to prefer.
uint64_t first_branch_target(const Code& code) {
    uint64_t first = code.size();
    Instruction instruction;
    // Behind bytes that are no instruction the sweep may find branches that are none: they only make the line shorter.
    for (uint64_t offset = 0; offset < code.size();) {
        if (!code.decode(offset, instruction)) {
            ++offset;
            continue;
        }
        const uint64_t target = branch_target(instruction);
        if (target > 0) first = std::min(first, target);
        offset = instruction.end();
    }
    return first;
}

bool is_argument(ZydisRegister whole_register, uint32_t argument_registers) {
    constexpr std::array by_argument = {ZYDIS_REGISTER_RDI, ZYDIS_REGISTER_RSI, ZYDIS_REGISTER_RDX,
                                        ZYDIS_REGISTER_RCX, ZYDIS_REGISTER_R8,  ZYDIS_REGISTER_R9};
    for (size_t index = 0; index < by_argument.size(); ++index)
        if (by_argument[index] == whole_register) return (argument_registers >> index & 1) != 0;
    return false;
}

/// Whether an instruction changes what a probe behind it reads. A store by rsp counts too: it may overwrite the return
/// address.
bool spoils(const Instruction& instruction, uint32_t argument_registers) {
    for (const ZydisDecodedOperand& operand : instruction.all_operands()) {
        if ((operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) == 0) continue;
        if (operand.type == ZYDIS_OPERAND_TYPE_MEMORY && operand.mem.base == ZYDIS_REGISTER_RSP) return true;
        if (operand.type != ZYDIS_OPERAND_TYPE_REGISTER) continue;
        const ZydisRegister whole = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, operand.reg.value);
        if (whole == ZYDIS_REGISTER_RSP || is_argument(whole, argument_registers)) return true;
    }
    return false;
}

/// Whether what follows an instruction is not always reached from it.
bool leaves_line(const Instruction& instruction) {
    switch (instruction.decoded.meta.category) {
        case ZYDIS_CATEGORY_CALL:
        case ZYDIS_CATEGORY_COND_BR:
        case ZYDIS_CATEGORY_UNCOND_BR:
        case ZYDIS_CATEGORY_RET:
        case ZYDIS_CATEGORY_SYSCALL:
        case ZYDIS_CATEGORY_SYSRET:
        case ZYDIS_CATEGORY_SYSTEM:
        case ZYDIS_CATEGORY_INTERRUPT:
            return true;
        default:
            return instruction.decoded.mnemonic == ZYDIS_MNEMONIC_UD2;
    }
}

/// `test %rdi,%rdi` and `cmp $0,%rdi`.
bool is_null_test(const Instruction& instruction) {
    constexpr std::array<uint8_t, 3> test = {0x48, 0x85, 0xff};
    constexpr std::array<uint8_t, 4> compare = {0x48, 0x83, 0xff, 0x00};
    return std::ranges::equal(instruction.bytes, test) || std::ranges::equal(instruction.bytes, compare);
}

std::string text_of(const Instruction& instruction, uint64_t function_vaddr) {
    ZydisFormatter formatter;
    ZydisFormatterInit(&formatter, ZYDIS_FORMATTER_STYLE_ATT);
    ZydisFormatterSetProperty(&formatter, ZYDIS_FORMATTER_PROP_ADDR_PADDING_ABSOLUTE, ZYDIS_PADDING_DISABLED);
    ZydisFormatterSetProperty(&formatter, ZYDIS_FORMATTER_PROP_HEX_UPPERCASE, ZYAN_FALSE);
    std::array<char, 128> text{};
    if (!ZYAN_SUCCESS(ZydisFormatterFormatInstruction(&formatter, &instruction.decoded, instruction.operands.data(),
                                                      instruction.decoded.operand_count_visible, text.data(),
                                                      text.size(), function_vaddr + instruction.offset, nullptr)))
        return "?";
    return text.data();
}

/// The first instruction of the function that is not replaced, whatever it is.
std::optional<Placement> place_at_start(const Code& code, uint64_t function_vaddr) {
    Instruction instruction;
    UprobeHandling handling = UprobeHandling::replaced;
    for (uint64_t offset = 0; handling == UprobeHandling::replaced; offset = instruction.end()) {
        if (!code.decode(offset, instruction)) return std::nullopt;
        handling = uprobe_handling(instruction.bytes);
    }
    if (handling == UprobeHandling::refused) return std::nullopt;
    if (instruction.offset > 0 && instruction.end() > first_branch_target(code)) return std::nullopt;
    return Placement{instruction.offset, handling == UprobeHandling::emulated, text_of(instruction, function_vaddr)};
}

}  // namespace

std::optional<Placement> place_probe(std::span<const uint8_t> bytes, uint64_t function_vaddr,
                                     const PlacementRules& rules) {
    const Code code(bytes);
    std::optional<Placement> best = place_at_start(code, function_vaddr);
    if (!best || best->is_emulated) return best;
    const uint64_t line_end = first_branch_target(code);
    Instruction instruction;
    bool is_behind_null_test = false;
    for (uint64_t offset = 0; code.decode(offset, instruction) && instruction.end() <= line_end;) {
        if (uprobe_handling(instruction.bytes) == UprobeHandling::emulated) {
            Placement here{offset, true, text_of(instruction, function_vaddr)};
            const bool is_null_jump = is_behind_null_test && instruction.decoded.mnemonic == ZYDIS_MNEMONIC_JZ;
            if (!is_null_jump) return here;
            // Behind the jump is better, because calls with NULL then cost nothing; the jump itself will do.
            best = std::move(here);
        } else if (leaves_line(instruction) || spoils(instruction, rules.argument_registers)) {
            break;
        }
        is_behind_null_test = rules.null_does_nothing && is_null_test(instruction);
        offset = instruction.end();
    }
    return best;
}

}  // namespace memtrace
