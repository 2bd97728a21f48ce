#include "runtimes/crystal_types.hpp"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "memtrace/runtimes_abi.h"
#include "probes/instructions.hpp"

namespace memtrace {
namespace {

// Longer than any `new` that the compiler writes; what is behind the number is not looked at.
constexpr uint64_t max_function_bytes = 1024;

std::optional<uint32_t> number_of(std::string_view text) {
    uint32_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number == 0 || number >= MT_MAX_TYPES) return {};
    return number;
}

/// "{172 - 174}: Node": an object of Node itself has the last number, those before are its subclasses'.
void add_line(std::string_view line, TypeNames& names) {
    const size_t start = line.find('{');
    const size_t dash = line.find(" - ");
    const size_t end = line.find("}: ");
    if (start == std::string_view::npos || dash == std::string_view::npos || end == std::string_view::npos) return;
    if (line.find_first_not_of(" \t") != start || dash < start || end < dash + 3) return;
    if (const auto number = number_of(line.substr(dash + 3, end - dash - 3)))
        // The generic class comes before the instance that has the same number, and the instance is what an object is.
        names.insert_or_assign(*number, std::string(line.substr(end + 3)));
}

void add_json(const nlohmann::json& types, TypeNames& names) {
    if (!types.is_array()) return;
    for (const nlohmann::json& type : types) {
        if (!type.is_object() || !type.contains("id") || !type.contains("name")) continue;
        if (!type["id"].is_number_unsigned() || !type["name"].is_string()) continue;
        const auto number = type["id"].get<uint64_t>();
        if (number > 0 && number < MT_MAX_TYPES)
            names.insert_or_assign(static_cast<uint32_t>(number), type["name"].get<std::string>());
    }
}

/// "Dog" of `*Dog::new<String, Int32>:Dog`, "Node(Int32)" of `*Node(Int32)@Node(T)::new<Int32>:Node(Int32)`; empty for
/// what is no `new` or `allocate`.
std::string_view type_of_symbol(std::string_view symbol) {
    if (!symbol.starts_with('*')) return {};
    symbol.remove_prefix(1);
    int depth = 0;
    size_t owner_end = std::string_view::npos;
    for (size_t index = 0; index < symbol.size(); ++index) {
        const char letter = symbol[index];
        if (letter == '(' || letter == '<') ++depth;
        if (letter == ')' || letter == '>') --depth;
        if (depth != 0) continue;
        if (letter == '@' && owner_end == std::string_view::npos) owner_end = index;
        const std::string_view rest = symbol.substr(index);
        if (rest.starts_with("::new") || rest.starts_with("::allocate"))
            return symbol.substr(0, std::min(owner_end, index));
        if (letter == '#') return {};
    }
    return {};
}

/// The number that the code behind a call writes to the start of what it points to: `movl $172,(%rcx)`.
std::optional<uint32_t> number_written(std::span<const uint8_t> bytes) {
    const Code code(bytes);
    Instruction instruction;
    bool has_called = false;
    for (uint64_t offset = 0; code.decode(offset, instruction); offset = instruction.end()) {
        if (instruction.decoded.mnemonic == ZYDIS_MNEMONIC_CALL) has_called = true;
        if (instruction.decoded.meta.category == ZYDIS_CATEGORY_RET) return {};
        const ZydisDecodedOperand& to = instruction.operands[0];
        const ZydisDecodedOperand& value = instruction.operands[1];
        const bool is_store = has_called && instruction.decoded.mnemonic == ZYDIS_MNEMONIC_MOV &&
                              to.type == ZYDIS_OPERAND_TYPE_MEMORY && to.size == 32 && to.mem.disp.value == 0 &&
                              to.mem.index == ZYDIS_REGISTER_NONE && to.mem.base != ZYDIS_REGISTER_RSP &&
                              value.type == ZYDIS_OPERAND_TYPE_IMMEDIATE;
        if (!is_store) continue;
        if (value.imm.value.u == 0 || value.imm.value.u >= MT_MAX_TYPES) return {};
        return static_cast<uint32_t>(value.imm.value.u);
    }
    return {};
}

}  // namespace

bool is_crystal_program(const ElfFile& file) {
    const auto functions = file.functions();
    return functions && std::ranges::find(*functions, "__crystal_main", &FunctionSymbol::name) != functions->end();
}

Result<TypeNames> parse_type_names(std::string_view text, std::string_view file_name) {
    TypeNames names;
    const size_t first = text.find_first_not_of(" \t\r\n");
    if (first != std::string_view::npos && text[first] == '[') {
        add_json(nlohmann::json::parse(text, nullptr, false), names);
    } else {
        for (size_t start = 0; start < text.size();) {
            const size_t end = std::min(text.find('\n', start), text.size());
            add_line(text.substr(start, end - start), names);
            start = end + 1;
        }
    }
    if (!names.empty()) return names;
    return Error{std::string(file_name), "names no type",
                 "write what CRYSTAL_DUMP_TYPE_ID=1 crystal build ... prints into it"};
}

TypeNames find_type_names(const ElfFile& file) {
    TypeNames names = {{crystal_string_type, "String"}};
    const auto functions = file.functions();
    if (!functions) return names;
    for (const FunctionSymbol& function : *functions) {
        const std::string_view type = type_of_symbol(function.name);
        if (type.empty()) continue;
        const auto bytes = file.code(function.vaddr, std::min(function.size_bytes, max_function_bytes));
        if (!bytes) continue;
        if (const auto number = number_written(*bytes)) names.emplace(*number, type);
    }
    return names;
}

}  // namespace memtrace
