// One row of the table of allocator functions, and what follows from it. Uses include/ only.
#pragma once

#include <cstdint>
#include <string_view>

#include "memtrace/abi.h"

namespace memtrace {

enum class BlockKind : uint8_t {
    heap,     // a block by its address
    mapping,  // bytes by interval
    gc,       // ... that a garbage collector gives back
};

/// In which files a symbol is the function of its row.
enum class RowScope : uint8_t {
    everywhere,           // the name says whose it is: mallocx
    family,               // where the file's allocator is of the row's family: malloc
    callers_of_malloc,    // where the file has no malloc of its own: libstdc++'s operator new
    system_call,          // not in files: the kernel's function of that name
    go_runtime,           // found by a Go program's own table of functions; a '*' in the symbol stands for anything
    functions_of_a_user,  // named on the command line; `file` may say where
};

/// One function that allocates or gives back. All text lives as long as the table.
struct AllocatorFunction {
    std::string_view family;  // "libc", "jemalloc", "c++": what `list` groups by
    std::string_view symbol;  // ELF name without version or prefix: "_Znwm"
    std::string_view name;    // as reports show it: "operator new"
    mt_row row{};             // what the kernel side needs
    BlockKind kind = BlockKind::heap;
    bool null_does_nothing = false;  // a call with argument 1 NULL is no event, so a probe may stand behind its test
    RowScope scope = RowScope::everywhere;
    bool may_return_inside = false;  // gc: its block may begin inside of the collector's object: GC_debug_malloc
    std::string_view file = {};      // of a user's function: path or name of the file that has it; empty: any
};

/// Whether the function's return must be seen, because the result is known only then. A DELEGATE never: its inner call
/// has the result.
constexpr bool needs_return(const mt_row& row) {
    switch (row.operation) {
        case MT_OP_ALLOCATE:
        case MT_OP_REALLOCATE:
        case MT_OP_ALLOCATE_OUT:
        case MT_OP_RESIZE:
        case MT_OP_MAP:
        case MT_OP_UNMAP:
        case MT_OP_REMAP:
        case MT_OP_BREAK:
        case MT_OP_MOVE_BREAK:
        case MT_OP_PROTECT:
        case MT_OP_ADVISE:
        case MT_OP_ATTACH:
        case MT_OP_DETACH:
            return true;
        default:
            return false;
    }
}

/// Whether the function changes mappings, not blocks.
constexpr bool changes_mappings(const mt_row& row) {
    switch (row.operation) {
        case MT_OP_MAP:
        case MT_OP_UNMAP:
        case MT_OP_REMAP:
        case MT_OP_BREAK:
        case MT_OP_MOVE_BREAK:
        case MT_OP_PROTECT:
        case MT_OP_ADVISE:
        case MT_OP_ATTACH:
        case MT_OP_DETACH:
            return true;
        default:
            return false;
    }
}

/// Whether the return is seen by probes on the function's own return instructions. An exception that passes a return
/// address which a return probe has replaced ends the target.
constexpr bool returns_by_instruction(const mt_row& row) {
    return (row.flags & MT_ROW_RETURN_INSTRUCTIONS) != 0;
}

/// Whether a return probe goes on the function.
constexpr bool is_return_probed(const mt_row& row) {
    return needs_return(row) && !returns_by_instruction(row);
}

/// Whether the function only gives back: such probes are attached first and detached last, so that no block stays live
/// whose end was not seen.
constexpr bool frees(const mt_row& row) {
    return row.operation == MT_OP_FREE || row.operation == MT_OP_UNMAP || row.operation == MT_OP_DETACH ||
           row.operation == MT_OP_GO_SAMPLE_END;
}

/// Whether a garbage collector gives its blocks back.
constexpr bool is_collected(const mt_row& row) {
    return (row.flags & MT_ROW_COLLECTED) != 0;
}

/// "heap", "mapping" or "gc": a call site's kind in reports.
constexpr std::string_view kind_name(BlockKind kind) {
    if (kind == BlockKind::mapping) return "mapping";
    return kind == BlockKind::gc ? "gc" : "heap";
}

/// The empty row at index 0.
constexpr bool is_reserved_row(const AllocatorFunction& function) {
    return function.symbol.empty() && function.row.operation == MT_OP_NONE;
}

/// The same of an operation on mappings.
constexpr bool has_right_mapping_arguments(const mt_row& row) {
    if (row.count_argument != 0 || row.out_argument != 0) return false;
    const auto has = [&row](mt_u8 old, mt_u8 size) { return row.old_argument == old && row.size_argument == size; };
    switch (row.operation) {
        case MT_OP_MAP:
            return has(0, 2);
        case MT_OP_UNMAP:
        case MT_OP_PROTECT:
        case MT_OP_ADVISE:
            return has(1, 2);
        case MT_OP_REMAP:
            return has(1, 3);
        case MT_OP_BREAK:
        case MT_OP_DETACH:
            return has(1, 0);
        case MT_OP_MOVE_BREAK:
            return has(0, 1);
        case MT_OP_ATTACH:
            return has(0, 0);
        default:
            return false;
    }
}

/// Whether the row names the arguments that its operation has, no more and no less.
constexpr bool has_right_arguments(const mt_row& row) {
    const bool is_string = (row.flags & MT_ROW_SIZE_OF_STRING) != 0;
    const int sizes = (row.size_argument != 0) + (row.constant_size_bytes != 0) + is_string;
    const bool has_size = sizes == 1;
    const bool has_count = row.count_argument != 0;
    const bool has_old = row.old_argument != 0;
    const bool has_out = row.out_argument != 0;
    const bool has_any_size = sizes != 0;
    switch (row.operation) {
        case MT_OP_ALLOCATE:
            return has_size && !has_old && !has_out;
        case MT_OP_FREE:
            return has_old && !has_any_size && !has_count && !has_out;
        case MT_OP_REALLOCATE:
        case MT_OP_RESIZE:
            return has_size && has_old && !has_out;
        case MT_OP_ALLOCATE_OUT:
            return has_size && has_out && !has_old;
        case MT_OP_THROW:
        case MT_OP_GO_ALLOCATE:
        case MT_OP_GO_SAMPLE:
        case MT_OP_GO_SAMPLE_END:
            return !has_any_size && !has_count && !has_old && !has_out;
        case MT_OP_DELEGATE:
            return row.size_argument != 0 && has_size && !has_count && !has_old && !has_out;
        default:
            return sizes == (row.size_argument != 0) && has_right_mapping_arguments(row);
    }
}

/// Whether the row's flags suit its operation: a mapping's and a delegate's return is never seen by instruction.
constexpr bool has_right_flags(const mt_row& row) {
    constexpr mt_u8 known =
        MT_ROW_RETURN_INSTRUCTIONS | MT_ROW_FREES_WHEN_FAILED | MT_ROW_SIZE_OF_STRING | MT_ROW_COLLECTED;
    if ((row.flags & ~known) != 0) return false;
    if ((row.flags & MT_ROW_FREES_WHEN_FAILED) != 0 && row.operation != MT_OP_REALLOCATE) return false;
    if ((row.flags & MT_ROW_SIZE_OF_STRING) != 0 && row.operation != MT_OP_ALLOCATE) return false;
    if (!returns_by_instruction(row)) return true;
    return row.operation == MT_OP_FREE || (needs_return(row) && !changes_mappings(row));
}

/// Whether a row agrees with its operation (include/memtrace/abi.h).
constexpr bool is_right_row(const AllocatorFunction& function) {
    const mt_row& row = function.row;
    if (function.family.empty() || function.symbol.empty() || function.name.empty()) return false;
    if (changes_mappings(row) != (function.kind == BlockKind::mapping)) return false;
    if (is_collected(row) && function.kind != BlockKind::gc) return false;
    if (function.null_does_nothing && (row.operation != MT_OP_FREE || row.old_argument != 1)) return false;
    if (row.reserved[0] != 0 || row.reserved[1] != 0 || row.reserved_word != 0) return false;
    uint32_t seen = 0;
    for (const mt_u8 argument : {row.size_argument, row.count_argument, row.old_argument, row.out_argument}) {
        if (argument > 6 || (argument != 0 && (seen >> argument & 1) != 0)) return false;
        seen |= 1u << argument;
    }
    return has_right_arguments(row) && has_right_flags(row);
}

/// The argument registers that the kernel side reads for this row: bit n-1 is argument n of the System V x86-64 ABI
/// (rdi rsi rdx rcx r8 r9). For mappings all arguments of the call.
constexpr uint32_t argument_registers(const mt_row& row) {
    if (row.operation == MT_OP_MAP) return 0b111111;
    if (row.operation == MT_OP_REMAP) return 0b011111;
    if (row.operation == MT_OP_PROTECT || row.operation == MT_OP_ADVISE || row.operation == MT_OP_ATTACH) return 0b111;
    uint32_t mask = 0;
    for (const mt_u8 argument : {row.size_argument, row.count_argument, row.old_argument, row.out_argument})
        if (argument != 0) mask |= 1u << (argument - 1);
    return mask;
}

}  // namespace memtrace
