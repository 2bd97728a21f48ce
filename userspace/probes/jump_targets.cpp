#include "probes/jump_targets.hpp"

namespace memtrace {
namespace {

// Enough for endbr64 and one jump.
constexpr uint64_t stub_bytes = 16;

/// The first instruction but for endbr64, which marks a place that is jumped to; false if there is none.
bool decode_first(const Code& code, Instruction& instruction) {
    if (!code.decode(0, instruction)) return false;
    if (instruction.decoded.mnemonic != ZYDIS_MNEMONIC_ENDBR64) return true;
    return code.decode(instruction.end(), instruction);
}

}  // namespace

bool is_indirect_jump(const Instruction& instruction) {
    return instruction.decoded.mnemonic == ZYDIS_MNEMONIC_JMP && branch_target(instruction) == UINT64_MAX;
}

JumpTargets::JumpTargets(const ElfFile& file, const std::vector<FunctionSymbol>& symbols) : file_(file) {
    for (const FunctionSymbol& symbol : symbols)
        vaddrs_.emplace(symbol.name, symbol.vaddr);
}

uint64_t JumpTargets::behind_stub(uint64_t vaddr) const {
    const auto bytes = file_.code(vaddr, stub_bytes);
    if (!bytes) return 0;
    Instruction instruction;
    if (!decode_first(Code(*bytes), instruction) || !is_indirect_jump(instruction)) return vaddr;
    const ZydisDecodedOperand& operand = instruction.operands[0];
    if (operand.type != ZYDIS_OPERAND_TYPE_MEMORY || operand.mem.base != ZYDIS_REGISTER_RIP) return vaddr;
    const uint64_t slot = vaddr + instruction.end() + static_cast<uint64_t>(operand.mem.disp.value);
    const auto symbol = vaddrs_.find(file_.symbol_of_slot(slot));
    return symbol == vaddrs_.end() ? 0 : symbol->second;
}

uint64_t JumpTargets::of_jump_at(uint64_t vaddr) const {
    const auto bytes = file_.code(vaddr, stub_bytes);
    if (!bytes) return 0;
    Instruction instruction;
    if (!decode_first(Code(*bytes), instruction) || instruction.decoded.mnemonic != ZYDIS_MNEMONIC_JMP) return 0;
    const uint64_t target = branch_target(instruction);
    if (target == UINT64_MAX) return behind_stub(vaddr) == vaddr ? 0 : behind_stub(vaddr);
    return behind_stub(vaddr + target);
}

}  // namespace memtrace
