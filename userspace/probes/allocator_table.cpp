#include "probes/allocator_table.hpp"

#include <algorithm>
#include <array>

#include "probes/allocator_families.hpp"

namespace memtrace {
namespace {

/// Whether `path` is the file that the user wrote: the same path or, where only a name was written, the same name,
/// maybe with more of a version behind it: a link libpool.so.1 leads to libpool.so.1.2.
bool is_file(std::string_view path, std::string_view wanted) {
    if (wanted.empty() || path == wanted) return true;
    if (wanted.find('/') != std::string_view::npos) return false;
    const std::string_view name = path.substr(path.rfind('/') + 1);
    return name.starts_with(wanted) && (name.size() == wanted.size() || name[wanted.size()] == '.');
}

/// Of C++ rather than C: it concerns the file's allocator only where that is in the same file.
bool is_cxx(std::string_view symbol) {
    return symbol.starts_with("_Zn") || symbol.starts_with("_Zd") || symbol.starts_with("__cxa_");
}

bool applies(const AllocatorFunction& function, const FileAllocator& allocator, std::string_view file) {
    switch (function.scope) {
        case RowScope::everywhere:
            return true;
        case RowScope::family:
            return function.family == allocator.family && (allocator.has_malloc || !is_cxx(function.symbol));
        case RowScope::callers_of_malloc:
            return !allocator.has_malloc;
        case RowScope::go_runtime:
        case RowScope::system_call:
            return false;
        case RowScope::functions_of_a_user:
            return is_file(file, function.file);
    }
    return false;
}

/// Whether a prefix of `family` goes before the function's name. One of no family is the user's: before the names that
/// say whose they are, and before those of the malloc family, which are then nobody's in particular.
bool has_prefix(const AllocatorFunction& function, std::string_view family) {
    if (function.kind != BlockKind::heap || function.scope == RowScope::functions_of_a_user) return false;
    if (!family.empty()) return function.family == family;
    return function.scope == RowScope::everywhere || function.family == allocator_families().back().name;
}

}  // namespace

AllocatorTable::AllocatorTable() {
    const auto built_in = built_in_functions();
    rows_.assign(built_in.begin(), built_in.end());
    for (uint32_t row = 1; row < rows_.size(); ++row)
        index_row(row);
    for (const AllocatorFamily& family : allocator_families())
        for (const std::string_view prefix : family.prefixes)
            prefixes_.push_back({prefix, family.name});
}

void AllocatorTable::index_row(uint32_t row) {
    rows_by_symbol_.emplace(rows_[row].symbol, row);
}

std::string_view AllocatorTable::keep(std::string_view text) {
    return texts_.emplace_back(text);
}

void AllocatorTable::add_prefix(std::string_view prefix) {
    if (prefix.empty() || std::ranges::find(prefixes_, prefix, &Prefix::text) != prefixes_.end()) return;
    prefixes_.push_back({keep(prefix), {}});
}

/// ISO C and POSIX: a pool that is left by them is in the file of those who call malloc next. It costs a trap each, so
/// they have rows only where there is a pool.
void AllocatorTable::add_jumps() {
    constexpr std::array<std::string_view, jump_rows> symbols = {"longjmp", "_longjmp", "siglongjmp", "__longjmp_chk"};
    for (const std::string_view symbol : symbols) {
        AllocatorFunction jump{.family = "libc", .symbol = symbol, .name = "longjmp"};
        jump.row.operation = MT_OP_THROW;
        rows_.push_back(jump);
        index_row(static_cast<uint32_t>(rows_.size() - 1));
    }
}

Result<void> AllocatorTable::add_function(const AllocatorFunction& function) {
    if (rows_.size() == built_in_functions().size()) add_jumps();
    if (!is_right_row(function)) return Error{std::string(function.symbol), "its arguments contradict each other"};
    if (rows_.size() >= MT_MAX_ROWS)
        return Error{std::string(function.symbol), "there is no room for one more function"};
    AllocatorFunction kept = function;
    kept.family = keep(function.family);
    kept.symbol = keep(function.symbol);
    kept.name = keep(function.name);
    kept.file = keep(function.file);
    kept.scope = RowScope::functions_of_a_user;
    rows_.push_back(kept);
    index_row(static_cast<uint32_t>(rows_.size() - 1));
    return {};
}

uint32_t AllocatorTable::find_named(std::string_view symbol, const FileAllocator& allocator,
                                    std::string_view file) const {
    uint32_t best = 0;
    const auto [begin, end] = rows_by_symbol_.equal_range(symbol);
    for (auto entry = begin; entry != end; ++entry) {
        const AllocatorFunction& function = rows_[entry->second];
        if (!applies(function, allocator, file)) continue;
        // The user's are behind all others.
        best = std::max(best, entry->second);
    }
    return best;
}

uint32_t AllocatorTable::find_prefixed(std::string_view symbol) const {
    for (const Prefix& prefix : prefixes_) {
        if (!symbol.starts_with(prefix.text)) continue;
        const auto [begin, end] = rows_by_symbol_.equal_range(symbol.substr(prefix.text.size()));
        for (auto entry = begin; entry != end; ++entry)
            if (has_prefix(rows_[entry->second], prefix.family)) return entry->second;
    }
    return 0;
}

uint32_t AllocatorTable::find(std::string_view symbol, const FileAllocator& allocator, std::string_view file) const {
    const std::string_view name = without_rust_mangling(symbol);
    if (const uint32_t row = find_named(symbol, allocator, file); row != 0 || name == symbol)
        return row != 0 ? row : find_prefixed(symbol);
    return find_named(name, allocator, file);
}

std::string_view without_rust_mangling(std::string_view symbol) {
    constexpr std::string_view module = "_7___rustc";
    if (!symbol.starts_with("_RNv")) return symbol;
    const size_t found = symbol.find(module);
    if (found == std::string_view::npos) return symbol;
    // The length of the identifier, then `_` because it starts with one.
    const std::string_view rest = symbol.substr(found + module.size());
    const size_t digits = rest.find_first_not_of("0123456789");
    if (digits == 0 || digits == std::string_view::npos || rest[digits] != '_') return symbol;
    return rest.substr(digits + 1);
}

}  // namespace memtrace
