// What call-frame information says at one address, as far as stacks need it: the CFA, the caller's rbp and the return
// address. Pure values. Register numbers are those of the x86-64 psABI, figure 3.36.
#pragma once

#include <cstdint>

namespace memtrace {

constexpr uint64_t dwarf_rbp = 6;
constexpr uint64_t dwarf_rsp = 7;
constexpr uint64_t dwarf_rip = 16;

/// Where a register's value in the caller is.
struct RegisterRule {
    enum class Kind : uint8_t {
        same,       ///< in the register still; also when the CFI says nothing
        at_cfa,     ///< the word at CFA + offset
        at_rbp,     ///< the word at rbp + offset, rbp of this frame
        undefined,  ///< not to be told; of the return address: there is no caller
        other,      ///< something else that the CFI can say
    };
    Kind kind = Kind::same;
    int64_t offset = 0;
};

/// What the CFA is.
struct CfaRule {
    enum class Kind : uint8_t {
        none,    ///< the CFI has not said it
        offset,  ///< register + offset
        at_rsp,  ///< the word at rsp + offset, + addend
        at_rbp,  ///< the word at rbp + offset, + addend
        plt11,   ///< the expressions of procedure linkage tables, see memtrace/unwind_abi.h
        plt10,
        other,
    };
    Kind kind = Kind::none;
    uint64_t register_number = 0;
    int64_t offset = 0;
    int64_t addend = 0;
};

struct FrameState {
    CfaRule cfa;
    RegisterRule rbp;
    RegisterRule return_address;
};

}  // namespace memtrace
