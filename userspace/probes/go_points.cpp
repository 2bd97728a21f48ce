#include "probes/go_points.hpp"

#include <fmt/format.h>

#include "probes/instructions.hpp"
#include "probes/uprobe_instructions.hpp"

namespace memtrace {
namespace {

/// `cmp 0x10(%r14), ...`: the goroutine's g.stackguard0.
bool is_stack_check(const Instruction& instruction) {
    if (instruction.decoded.mnemonic != ZYDIS_MNEMONIC_CMP) return false;
    for (const ZydisDecodedOperand& operand : instruction.all_operands())
        if (operand.type == ZYDIS_OPERAND_TYPE_MEMORY && operand.mem.base == ZYDIS_REGISTER_R14 &&
            operand.mem.disp.value == 0x10)
            return true;
    return false;
}

/// Whether the row's symbol is the function's name; a '*' in it stands for anything.
bool is_named(std::string_view name, std::string_view symbol) {
    const size_t star = symbol.find('*');
    if (star == std::string_view::npos) return name == symbol;
    const std::string_view tail = symbol.substr(star + 1);
    return name.size() + 1 >= symbol.size() && name.starts_with(symbol.substr(0, star)) && name.ends_with(tail);
}

/// Every return instruction of a function; empty if its code is not all decoded.
std::vector<uint64_t> returns_of(std::span<const uint8_t> bytes) {
    const Code code(bytes);
    Instruction instruction;
    std::vector<uint64_t> returns;
    uint64_t offset = 0;
    for (; offset < code.size() && code.decode(offset, instruction); offset = instruction.end())
        if (instruction.decoded.mnemonic == ZYDIS_MNEMONIC_RET) returns.push_back(offset);
    return offset < code.size() ? std::vector<uint64_t>() : returns;
}

void add_function(const ElfFile& file, const GoProgram::Function& function, uint32_t row, const mt_row& what,
                  ProbePoints& found) {
    const auto skip = [&](std::string reason) { found.skipped.push_back({function.name, std::move(reason)}); };
    const auto offset = file.file_offset(function.start);
    const auto code = file.code(function.start, function.end - function.start);
    if (!offset || !code || code->size() < function.end - function.start) return skip("its code cannot be read");
    auto placement = place_go_probe(*code);
    if (!placement) return skip("its first instruction cannot carry a probe");
    const bool is_waited_for = what.operation == MT_OP_GO_ALLOCATE;
    const std::vector<uint64_t> returns = is_waited_for ? returns_of(*code) : std::vector<uint64_t>();
    if (is_waited_for && returns.empty()) return skip("its return instructions cannot be told");
    found.points.push_back({.kind = placement->offset > 0 ? PointKind::go_entry_checked : PointKind::go_entry,
                            .row = row,
                            .symbol = function.name,
                            .symbol_vaddr = function.start,
                            .file_offset = *offset + placement->offset,
                            .function_size = function.end - function.start,
                            .placement = *placement});
    for (const uint64_t at : returns)
        found.points.push_back({.kind = PointKind::go_return,
                                .row = row,
                                .symbol = function.name,
                                .symbol_vaddr = function.start,
                                .file_offset = *offset + at,
                                .function_size = function.end - function.start,
                                .placement = {.offset = at, .is_emulated = false, .instruction = "ret"}});
}

}  // namespace

std::optional<Placement> place_go_probe(std::span<const uint8_t> bytes) {
    // lea for a large frame, cmp, jbe.
    constexpr int most_instructions = 4;
    const Code code(bytes);
    Instruction instruction;
    bool has_check = false;
    uint64_t offset = 0;
    for (int number = 0; number < most_instructions && code.decode(offset, instruction); ++number) {
        if (has_check && instruction.decoded.mnemonic == ZYDIS_MNEMONIC_JBE)
            return Placement{.offset = offset, .is_emulated = true, .instruction = "jbe"};
        has_check = is_stack_check(instruction);
        offset = instruction.end();
    }
    if (!code.decode(0, instruction)) return std::nullopt;
    if (uprobe_handling(instruction.bytes) == UprobeHandling::replaced) return std::nullopt;
    return Placement{
        .offset = 0, .is_emulated = false, .instruction = ZydisMnemonicGetString(instruction.decoded.mnemonic)};
}

void add_go_points(const ElfFile& file, const GoProgram& program, const AllocatorTable& table, ProbePoints& found) {
    for (const GoProgram::Function& function : program.functions_starting_with("runtime.")) {
        for (uint32_t row = 1; row < table.rows().size(); ++row) {
            const AllocatorFunction& wanted = table[row];
            const bool is_full = wanted.row.operation == MT_OP_GO_ALLOCATE;
            if (wanted.scope != RowScope::go_runtime || is_full != table.traces_go_fully()) continue;
            if (is_named(function.name, wanted.symbol)) add_function(file, function, row, wanted.row, found);
        }
    }
}

}  // namespace memtrace
