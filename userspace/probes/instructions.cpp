#include "probes/instructions.hpp"

namespace memtrace {

Code::Code(std::span<const uint8_t> bytes) : bytes_(bytes) {
    ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
}

bool Code::decode(uint64_t offset, Instruction& instruction) const {
    if (offset >= bytes_.size()) return false;
    const auto rest = bytes_.subspan(offset);
    if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder_, rest.data(), rest.size(), &instruction.decoded,
                                             instruction.operands.data())))
        return false;
    instruction.offset = offset;
    instruction.bytes = rest.first(instruction.decoded.length);
    return true;
}

uint64_t branch_target(const Instruction& instruction) {
    for (const ZydisDecodedOperand& operand : instruction.all_operands())
        if (operand.type == ZYDIS_OPERAND_TYPE_IMMEDIATE && operand.imm.is_relative)
            return instruction.end() + static_cast<uint64_t>(operand.imm.value.s);
    return UINT64_MAX;
}

}  // namespace memtrace
