// THE TABLE of allocator functions: one row a function; a new allocator is a row here and nothing else. Uses include/
// only. A row's index is the cookie of its probes and the `row` of a call site; index 0 is reserved and empty.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "memtrace/abi.h"

namespace memtrace {

enum class BlockKind : uint8_t {
    heap,     // a block by its address
    mapping,  // bytes by interval
};

/// One function that allocates or gives back. All text lives as long as the program.
struct AllocatorFunction {
    std::string_view family;  // "libc", "c++": what `list` groups by
    std::string_view symbol;  // ELF name without version: "_Znwm"
    std::string_view name;    // as reports show it: "operator new"
    mt_row row{};             // what the kernel side needs
    BlockKind kind = BlockKind::heap;
    bool null_does_nothing = false;  // a call with argument 1 NULL is no event, so a probe may stand behind its test
};

/// All rows in the order of their numbers; rows that come first win where several symbols name one place of a file.
std::span<const AllocatorFunction> allocator_table();

/// Whether the function's return must be seen, because the result is known only then. A DELEGATE never: its inner call
/// has the result, and an exception that passes a hijacked return address ends the target.
constexpr bool needs_return(const mt_row& row) {
    switch (row.operation) {
        case MT_OP_ALLOCATE:
        case MT_OP_REALLOCATE:
        case MT_OP_ALLOCATE_OUT:
        case MT_OP_MAP:
        case MT_OP_UNMAP:
        case MT_OP_REMAP:
            return true;
        default:
            return false;
    }
}

/// Whether the function only gives back: such probes are attached first and detached last, so that no block stays live
/// whose end was not seen.
constexpr bool frees(const mt_row& row) {
    return row.operation == MT_OP_FREE || row.operation == MT_OP_UNMAP;
}

/// The empty row at index 0.
constexpr bool is_reserved_row(const AllocatorFunction& function) {
    return function.symbol.empty() && function.row.operation == MT_OP_NONE;
}

/// Whether the row names the arguments that its operation has, no more and no less.
constexpr bool has_right_arguments(const mt_row& row) {
    const bool has_size = row.size_argument != 0;
    const bool has_count = row.count_argument != 0;
    const bool has_old = row.old_argument != 0;
    const bool has_out = row.out_argument != 0;
    switch (row.operation) {
        case MT_OP_ALLOCATE:
            return has_size && !has_old && !has_out;
        case MT_OP_FREE:
            return has_old && !has_size && !has_count && !has_out;
        case MT_OP_REALLOCATE:
            return has_size && has_old && !has_out;
        case MT_OP_ALLOCATE_OUT:
            return has_size && has_out && !has_old;
        case MT_OP_DELEGATE:
            return has_size && !has_count && !has_old && !has_out;
        case MT_OP_MAP:
            return row.size_argument == 2 && !has_count && !has_old && !has_out;
        case MT_OP_UNMAP:
            return row.old_argument == 1 && row.size_argument == 2 && !has_count && !has_out;
        case MT_OP_REMAP:
            return row.old_argument == 1 && row.size_argument == 3 && !has_count && !has_out;
        default:
            return false;
    }
}

/// Whether a row agrees with its operation (include/memtrace/abi.h). Checked for the whole table when it is
/// compiled.
constexpr bool is_right_row(const AllocatorFunction& function) {
    const mt_row& row = function.row;
    const bool is_mapping = row.operation == MT_OP_MAP || row.operation == MT_OP_UNMAP || row.operation == MT_OP_REMAP;
    if (function.family.empty() || function.symbol.empty() || function.name.empty()) return false;
    if (is_mapping != (function.kind == BlockKind::mapping)) return false;
    if (function.null_does_nothing && (row.operation != MT_OP_FREE || row.old_argument != 1)) return false;
    if (row.reserved[0] != 0 || row.reserved[1] != 0 || row.reserved[2] != 0) return false;
    uint32_t seen = 0;
    for (const mt_u8 argument : {row.size_argument, row.count_argument, row.old_argument, row.out_argument}) {
        if (argument > 6 || (argument != 0 && (seen >> argument & 1) != 0)) return false;
        seen |= 1u << argument;
    }
    return has_right_arguments(row);
}

/// The argument registers that the kernel side reads for this row: bit n-1 is argument n of the System V x86-64 ABI
/// (rdi rsi rdx rcx r8 r9). For mappings all arguments of the call.
constexpr uint32_t argument_registers(const mt_row& row) {
    if (row.operation == MT_OP_MAP) return 0b111111;
    if (row.operation == MT_OP_REMAP) return 0b011111;
    uint32_t mask = 0;
    for (const mt_u8 argument : {row.size_argument, row.count_argument, row.old_argument, row.out_argument})
        if (argument != 0) mask |= 1u << (argument - 1);
    return mask;
}

}  // namespace memtrace
