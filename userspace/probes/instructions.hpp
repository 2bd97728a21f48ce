// Decodes machine code of one function. Uses Zydis; the only files that know it are those that include this one.
#pragma once

#include <Zydis/Zydis.h>

#include <array>
#include <cstdint>
#include <span>

namespace memtrace {

struct Instruction {
    uint64_t offset = 0;             // from the function's first byte
    std::span<const uint8_t> bytes;  // they live as long as those that are decoded
    ZydisDecodedInstruction decoded{};
    std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands{};

    uint64_t end() const { return offset + bytes.size(); }
    std::span<const ZydisDecodedOperand> all_operands() const { return {operands.data(), decoded.operand_count}; }
};

/// Decodes one function's bytes.
class Code {
  public:
    /// `bytes` must outlive the object.
    explicit Code(std::span<const uint8_t> bytes);

    uint64_t size() const { return bytes_.size(); }

    /// Into the caller's `instruction`, which is large; false where the bytes are no whole instruction.
    bool decode(uint64_t offset, Instruction& instruction) const;

  private:
    std::span<const uint8_t> bytes_;
    ZydisDecoder decoder_{};
};

/// Where a relative branch leads, as an offset in the function (modulo 2^64 where that is before it); UINT64_MAX if the
/// instruction is none.
uint64_t branch_target(const Instruction& instruction);

}  // namespace memtrace
