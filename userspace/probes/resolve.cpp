#include "probes/resolve.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "probes/allocator_families.hpp"
#include "probes/function_returns.hpp"
#include "probes/go_points.hpp"

namespace memtrace {
namespace {

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

/// Whose malloc the file has.
FileAllocator allocator_of(const ElfFile& file, const std::vector<FunctionSymbol>& functions) {
    std::unordered_map<std::string_view, uint64_t> vaddrs;
    for (const FunctionSymbol& function : functions)
        vaddrs.emplace(function.name, function.vaddr);
    const auto found = vaddrs.find("malloc");
    const bool has_malloc = found != vaddrs.end();
    for (const AllocatorFamily& family : allocator_families()) {
        const auto alias = vaddrs.find(family.alias);
        const bool is_alias = has_malloc && alias != vaddrs.end() && alias->second == found->second;
        if (is_alias || vaddrs.contains(family.mark)) return {family.name, has_malloc};
    }
    return {file.is_static() ? "libc" : allocator_families().back().name, has_malloc};
}

/// All definitions of the table's functions: the user's first, then in the order of the table and of their address.
std::vector<Definition> find_definitions(const ElfFile& file, const std::vector<FunctionSymbol>& functions,
                                         const AllocatorTable& table, const FileAllocator& allocator) {
    std::vector<Definition> definitions;
    for (const FunctionSymbol& function : functions) {
        const uint32_t row = table.find(function.name, allocator, file.name());
        // A library's own copy of mmap is not what the program calls: that of the dynamic linker maps libraries.
        const bool is_private = function.is_local && table[row].kind == BlockKind::mapping;
        if (row != 0 && !is_private) definitions.push_back({row, function});
    }
    std::ranges::stable_sort(definitions, {}, [&](const Definition& definition) {
        const bool is_built_in = table[definition.row].scope != RowScope::functions_of_a_user;
        const bool has_prefix = table[definition.row].symbol != definition.symbol.name;
        return std::tuple(is_built_in, definition.row, has_prefix, definition.symbol.vaddr);
    });
    return definitions;
}

/// Looks at one file.
class Resolver {
  public:
    /// `go`: null where the file is no Go program.
    Resolver(const ElfFile& file, const AllocatorTable& table, const GoProgram* go)
        : file_(file), table_(table), go_(go) {}

    Result<ProbePoints> look(std::vector<FunctionSymbol> functions);

  private:
    std::optional<ProbePoint> entry_point(const Definition& definition);
    void skip(const FunctionSymbol& symbol, std::string reason);
    void make_delegates(const ReturnFinder& finder);
    void find_returns(const JumpTargets& jumps);
    void leave_out_jumps_to_frees(const JumpTargets& jumps);
    void leave_out_collector_wrappers(const JumpTargets& jumps);
    void add_returns(PointKind kind, const std::set<uint64_t>& vaddrs);

    const ElfFile& file_;
    const AllocatorTable& table_;
    const GoProgram* go_;
    std::vector<FunctionSymbol> functions_;
    std::vector<uint64_t> addresses_;  // sorted
    ProbePoints found_;
};

void Resolver::skip(const FunctionSymbol& symbol, std::string reason) {
    found_.skipped.push_back({std::string(symbol.name), std::move(reason)});
}

std::optional<ProbePoint> Resolver::entry_point(const Definition& definition) {
    const FunctionSymbol& symbol = definition.symbol;
    const auto refuse = [&](std::string reason) {
        skip(symbol, std::move(reason));
        return std::nullopt;
    };
    if (symbol.is_ifunc) return refuse("an indirect function (STT_GNU_IFUNC): its address is known only at run time");
    if (go_ != nullptr && go_->at(symbol.vaddr))
        return refuse("Go code: a probe on its return would end the program; --go-full traces what it allocates");
    const auto offset = file_.file_offset(symbol.vaddr);
    if (!offset) return refuse(fmt::format("address {:#x} is in no executable segment", symbol.vaddr));
    const auto code = file_.code(symbol.vaddr, own_size(symbol, addresses_));
    if (!code) return refuse(code.error().why);
    const AllocatorFunction& function = table_[definition.row];
    auto placement = place_probe(*code, symbol.vaddr, {argument_registers(function.row), function.null_does_nothing});
    if (!placement) return refuse("its first instruction cannot carry a probe");
    return ProbePoint{.row = definition.row,
                      .symbol = std::string(symbol.name),
                      .symbol_vaddr = symbol.vaddr,
                      .file_offset = *offset + placement->offset,
                      .function_size = symbol.size_bytes,
                      .placement = *placement};
}

void Resolver::add_returns(PointKind kind, const std::set<uint64_t>& vaddrs) {
    for (const uint64_t vaddr : vaddrs) {
        const auto offset = file_.file_offset(vaddr);
        if (!offset) continue;
        ProbePoint point;
        point.kind = kind;
        point.symbol_vaddr = vaddr;
        point.file_offset = *offset;
        found_.points.push_back(std::move(point));
    }
}

/// What gives back by jumping to what gives back is seen there; a probe of its own would cost a trap and tell nothing.
void Resolver::leave_out_jumps_to_frees(const JumpTargets& jumps) {
    std::unordered_set<uint64_t> frees;
    const auto is_free = [&](const ProbePoint& point) {
        const AllocatorFunction& function = table_[point.row];
        return function.row.operation == MT_OP_FREE && function.row.old_argument == 1 &&
               function.scope != RowScope::functions_of_a_user;
    };
    for (const ProbePoint& point : found_.points)
        if (is_free(point)) frees.insert(point.symbol_vaddr);
    std::erase_if(found_.points, [&](const ProbePoint& point) {
        const uint64_t target = is_free(point) ? jumps.of_jump_at(point.symbol_vaddr) : 0;
        return target != point.symbol_vaddr && frees.contains(target);
    });
}

/// GC_malloc of libgc 8 is a jump to GC_malloc_kind, where its calls are seen: one trap in place of two.
void Resolver::leave_out_collector_wrappers(const JumpTargets& jumps) {
    const auto inner = std::ranges::find(found_.points, "GC_malloc_kind", &ProbePoint::symbol);
    if (inner == found_.points.end()) return;
    const std::set<uint64_t> callees = {inner->symbol_vaddr};
    const ReturnFinder finder(file_, functions_, jumps);
    std::erase_if(found_.points, [&](const ProbePoint& point) {
        const bool is_wrapper = point.symbol == "GC_malloc" || point.symbol == "GC_malloc_atomic";
        return is_wrapper && finder.calls_any(point.symbol_vaddr, callees);
    });
}

/// Where operator new calls the file's own malloc, as that of a static libstdc++ does, it is a delegate as elsewhere.
void Resolver::make_delegates(const ReturnFinder& finder) {
    std::set<uint64_t> callees;
    for (const ProbePoint& point : found_.points)
        if (is_return_probed(table_[point.row].row)) callees.insert(point.symbol_vaddr);
    // operator new[] may call operator new.
    for (size_t found = 0; found != callees.size();) {
        found = callees.size();
        for (ProbePoint& point : found_.points) {
            const uint32_t delegate = table_.find(point.symbol, FileAllocator{}, file_.name());
            if (table_[delegate].row.operation != MT_OP_DELEGATE) continue;
            if (!returns_by_instruction(table_[point.row].row) || !finder.calls_any(point.symbol_vaddr, callees))
                continue;
            point.row = delegate;
            callees.insert(point.symbol_vaddr);
        }
    }
}

/// Of the functions that are seen to return by instruction; one whose returns cannot be told loses its probe.
void Resolver::find_returns(const JumpTargets& jumps) {
    const auto needs_returns = [&](const ProbePoint& point) { return returns_by_instruction(table_[point.row].row); };
    if (std::ranges::none_of(found_.points, needs_returns)) return;
    const ReturnFinder finder(file_, functions_, jumps);
    make_delegates(finder);
    std::set<uint64_t> seen_otherwise;
    for (const ProbePoint& point : found_.points)
        if (!needs_returns(point)) seen_otherwise.insert(point.symbol_vaddr);
    FunctionReturns returns;
    std::erase_if(found_.points, [&](const ProbePoint& point) {
        if (!needs_returns(point)) return false;
        const auto result = finder.find(point.symbol_vaddr, seen_otherwise, returns);
        if (!result) found_.skipped.push_back({point.symbol, result.error().why});
        return !result;
    });
    add_returns(PointKind::return_instruction, returns.returns);
    add_returns(PointKind::unseen_return, returns.unseen);
}

Result<ProbePoints> Resolver::look(std::vector<FunctionSymbol> functions) {
    // Several versions of one symbol can be several functions, so a row may have a few points, but not any number.
    constexpr size_t max_points = 2 * MT_MAX_ROWS;
    functions_ = std::move(functions);
    addresses_ = sorted_addresses(functions_);
    const FileAllocator allocator = allocator_of(file_, functions_);
    found_.allocator = allocator;
    std::unordered_set<uint64_t> resolved;
    for (const Definition& definition : find_definitions(file_, functions_, table_, allocator)) {
        if (!resolved.insert(definition.symbol.vaddr).second) continue;
        if (resolved.size() > max_points) return Error{file_.name(), "defines the functions of an allocator too often"};
        if (auto point = entry_point(definition)) found_.points.push_back(std::move(*point));
    }
    if (found_.points.empty()) return std::move(found_);
    const JumpTargets jumps(file_, functions_);
    leave_out_jumps_to_frees(jumps);
    leave_out_collector_wrappers(jumps);
    find_returns(jumps);
    return std::move(found_);
}

}  // namespace

Result<ProbePoints> find_probe_points(const ElfFile& file, const AllocatorTable& table, const ElfFile* debug_file) {
    auto functions = file.functions();
    if (!functions) return functions.error();
    if (debug_file != nullptr)
        if (auto more = debug_file->functions()) functions->insert(functions->end(), more->begin(), more->end());
    const auto go = GoProgram::read(file);
    auto found = Resolver(file, table, go ? &*go : nullptr).look(std::move(*functions));
    if (found && go) add_go_points(file, *go, table, *found);
    return found;
}

}  // namespace memtrace
