// The allocators that memtrace knows by name: what their functions are called. Uses include/ only.
#pragma once

#include <span>
#include <string_view>

#include "probes/allocators.hpp"

namespace memtrace {

/// One allocator, whose malloc is called malloc or has a prefix.
struct AllocatorFamily {
    std::string_view name;                         // "jemalloc"
    std::span<const std::string_view> prefixes{};  // "je_": je_malloc is its malloc
    std::string_view mark = {};                    // a file that defines this symbol has its malloc from this family
    std::string_view alias = {};                   // ... a file in which this symbol is at malloc's address
};

/// All of them; those that come first win. The last one is of mallocs that nothing is known of.
std::span<const AllocatorFamily> allocator_families();

/// The rows of all families, row 0 first, in the order of their numbers.
std::span<const AllocatorFunction> built_in_functions();

}  // namespace memtrace
