// THE TABLE of allocator functions: those that memtrace knows and those that the user named. A row's index is the
// cookie of its probes and the `row` of a call site. A new allocator is rows in allocator_families.cpp and nothing
// else.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "probes/allocators.hpp"

namespace memtrace {

/// What a file's own functions say of its allocator.
struct FileAllocator {
    std::string_view family;  // of its malloc, or of those of malloc's relatives that it has
    bool has_malloc = false;  // then its operator new need not call another file's
};

/// Row 0 is reserved. Filled before a session is opened and not changed after; then any thread may read it.
class AllocatorTable {
  public:
    /// All built-in rows.
    AllocatorTable();
    AllocatorTable(AllocatorTable&&) = default;
    AllocatorTable& operator=(AllocatorTable&&) = default;

    /// Functions whose names are those of the malloc family, and of jemalloc and others, behind `prefix`. A prefix that
    /// is built in is known already.
    void add_prefix(std::string_view prefix);
    /// A function that the user named; its texts are copied. Errors: the row contradicts itself, the table is full.
    Result<void> add_function(const AllocatorFunction& function);

    /// Every allocation of Go programs is traced, not those alone that their runtime samples.
    void trace_go_fully() { traces_go_fully_ = true; }
    bool traces_go_fully() const { return traces_go_fully_; }

    /// Rows that come with the user's first function.
    static constexpr size_t jump_rows = 4;

    std::span<const AllocatorFunction> rows() const { return rows_; }
    /// The row of that number, the reserved one if there is none.
    const AllocatorFunction& operator[](uint32_t row) const { return rows_[row < rows_.size() ? row : 0]; }

    /// The row of the function `symbol` of a file with that allocator; 0 if there is none. A user's function wins.
    uint32_t find(std::string_view symbol, const FileAllocator& allocator, std::string_view file) const;

  private:
    struct Prefix {
        std::string_view text;
        std::string_view family;  // empty: the user's
    };

    std::string_view keep(std::string_view text);
    void add_jumps();
    void index_row(uint32_t row);
    uint32_t find_named(std::string_view symbol, const FileAllocator& allocator, std::string_view file) const;
    uint32_t find_prefixed(std::string_view symbol) const;

    bool traces_go_fully_ = false;
    std::vector<AllocatorFunction> rows_;
    std::unordered_multimap<std::string_view, uint32_t> rows_by_symbol_;
    std::vector<Prefix> prefixes_;
    std::deque<std::string> texts_;  // of the user: what the views of rows and prefixes point to
};

/// The name that Rust gave a function of its global allocator: since 1.87 they are mangled,
/// `_RNvCs…_7___rustc12___rust_alloc` (Rust RFC 2603, <identifier>). Any other symbol as it is.
std::string_view without_rust_mangling(std::string_view symbol);

}  // namespace memtrace
