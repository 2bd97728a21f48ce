#include "probes/resolve.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "probes/allocators.hpp"

namespace memtrace {
namespace {

/// What one look at a file finds.
struct Findings {
    std::vector<ProbePoint> points;
    std::vector<SkippedFunction> skipped;
};

/// A definition of a row's function.
struct Definition {
    uint32_t row = 0;
    FunctionSymbol symbol;
};

/// Sorted addresses of all functions of a file.
std::vector<uint64_t> sorted_addresses(const std::vector<FunctionSymbol>& functions) {
    std::vector<uint64_t> addresses;
    addresses.reserve(functions.size());
    for (const FunctionSymbol& function : functions)
        addresses.push_back(function.vaddr);
    std::ranges::sort(addresses);
    return addresses;
}

/// The bytes from a function's start that are its own: its size, or less if the file has a symbol inside of it, because
/// callers jump to that place and would miss a probe before it.
uint64_t own_size(const FunctionSymbol& function, const std::vector<uint64_t>& addresses) {
    // Bounds what a wrong size can cost; the line that a probe can stand on is much shorter.
    constexpr uint64_t max_size_bytes = 64 << 10;
    uint64_t size = function.size_bytes != 0 ? std::min(function.size_bytes, max_size_bytes) : max_size_bytes;
    const auto next = std::ranges::upper_bound(addresses, function.vaddr);
    return next == addresses.end() ? size : std::min(size, *next - function.vaddr);
}

/// All definitions of the table's functions, in the order of the table and then of their address.
std::vector<Definition> find_definitions(const std::vector<FunctionSymbol>& functions) {
    std::unordered_map<std::string_view, uint32_t> rows;
    const auto table = allocator_table();
    for (uint32_t row = 1; row < table.size(); ++row)
        rows.emplace(table[row].symbol, row);
    std::vector<Definition> definitions;
    for (const FunctionSymbol& function : functions)
        if (const auto found = rows.find(function.name); found != rows.end())
            definitions.push_back({found->second, function});
    std::ranges::stable_sort(definitions, {}, [](const Definition& definition) {
        return std::pair(definition.row, definition.symbol.vaddr);
    });
    return definitions;
}

void resolve(const ElfFile& file, const Definition& definition, uint64_t size_bytes, Findings& findings) {
    const FunctionSymbol& symbol = definition.symbol;
    const auto skip = [&](std::string reason) {
        findings.skipped.push_back({std::string(symbol.name), std::move(reason)});
    };
    if (symbol.is_ifunc) return skip("an indirect function (STT_GNU_IFUNC): its address is known only at run time");
    const auto offset = file.file_offset(symbol.vaddr);
    if (!offset) return skip(fmt::format("address {:#x} is in no executable segment", symbol.vaddr));
    const auto code = file.code(symbol.vaddr, size_bytes);
    if (!code) return skip(code.error().why);
    const AllocatorFunction& function = allocator_table()[definition.row];
    auto placement = place_probe(*code, symbol.vaddr, {argument_registers(function.row), function.null_does_nothing});
    if (!placement) return skip("its first instruction cannot carry a probe");
    findings.points.push_back({.row = definition.row,
                               .symbol = std::string(symbol.name),
                               .symbol_vaddr = symbol.vaddr,
                               .file_offset = *offset + placement->offset,
                               .function_size = symbol.size_bytes,
                               .placement = *placement});
}

Result<Findings> look(const ElfFile& file) {
    const auto functions = file.functions();
    if (!functions) return functions.error();
    // Several versions of one symbol can be several functions, so a row may have a few points, but not any number.
    constexpr size_t max_points = 2 * MT_MAX_ROWS;
    const std::vector<uint64_t> addresses = sorted_addresses(*functions);
    std::unordered_set<uint64_t> resolved;
    Findings findings;
    for (const Definition& definition : find_definitions(*functions)) {
        if (!resolved.insert(definition.symbol.vaddr).second) continue;
        if (resolved.size() > max_points) return Error{file.name(), "defines the functions of an allocator too often"};
        resolve(file, definition, own_size(definition.symbol, addresses), findings);
    }
    return findings;
}

}  // namespace

Result<std::vector<ProbePoint>> find_probe_points(const ElfFile& file) {
    auto findings = look(file);
    if (!findings) return findings.error();
    return std::move(findings->points);
}

Result<std::vector<SkippedFunction>> find_skipped_functions(const ElfFile& file) {
    auto findings = look(file);
    if (!findings) return findings.error();
    return std::move(findings->skipped);
}

}  // namespace memtrace
