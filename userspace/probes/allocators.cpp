#include "probes/allocators.hpp"

#include <array>

namespace memtrace {
namespace {

struct Arguments {
    mt_u8 size = 0;
    mt_u8 count = 0;
    mt_u8 old = 0;
    mt_u8 out = 0;
};

constexpr mt_row does(mt_operation operation, Arguments argument) {
    mt_row row{};
    row.operation = static_cast<mt_u8>(operation);
    row.size_argument = argument.size;
    row.count_argument = argument.count;
    row.old_argument = argument.old;
    row.out_argument = argument.out;
    return row;
}

// clang-format off
// operator delete has no row: it ends in free, which does the work, and a free needs no owner, so a probe there would
// cost a trap and tell nothing.
constexpr auto table = std::to_array<AllocatorFunction>({
    {},
    {.family = "libc", .symbol = "malloc",             .name = "malloc",             .row = does(MT_OP_ALLOCATE,     {.size = 1})},
    {.family = "libc", .symbol = "calloc",             .name = "calloc",             .row = does(MT_OP_ALLOCATE,     {.size = 2, .count = 1})},
    {.family = "libc", .symbol = "realloc",            .name = "realloc",            .row = does(MT_OP_REALLOCATE,   {.size = 2, .old = 1})},
    {.family = "libc", .symbol = "reallocarray",       .name = "reallocarray",       .row = does(MT_OP_REALLOCATE,   {.size = 3, .count = 2, .old = 1})},
    {.family = "libc", .symbol = "free",               .name = "free",               .row = does(MT_OP_FREE,         {.old = 1}), .null_does_nothing = true},
    {.family = "libc", .symbol = "cfree",              .name = "cfree",              .row = does(MT_OP_FREE,         {.old = 1}), .null_does_nothing = true},
    {.family = "libc", .symbol = "posix_memalign",     .name = "posix_memalign",     .row = does(MT_OP_ALLOCATE_OUT, {.size = 3, .out = 1})},
    {.family = "libc", .symbol = "aligned_alloc",      .name = "aligned_alloc",      .row = does(MT_OP_ALLOCATE,     {.size = 2})},
    {.family = "libc", .symbol = "memalign",           .name = "memalign",           .row = does(MT_OP_ALLOCATE,     {.size = 2})},
    {.family = "libc", .symbol = "valloc",             .name = "valloc",             .row = does(MT_OP_ALLOCATE,     {.size = 1})},
    {.family = "libc", .symbol = "pvalloc",            .name = "pvalloc",            .row = does(MT_OP_ALLOCATE,     {.size = 1})},
    {.family = "libc", .symbol = "free_sized",         .name = "free_sized",         .row = does(MT_OP_FREE,         {.old = 1}), .null_does_nothing = true},
    {.family = "libc", .symbol = "free_aligned_sized", .name = "free_aligned_sized", .row = does(MT_OP_FREE,         {.old = 1}), .null_does_nothing = true},
    {.family = "libc", .symbol = "mmap",               .name = "mmap",               .row = does(MT_OP_MAP,          {.size = 2}), .kind = BlockKind::mapping},
    {.family = "libc", .symbol = "mmap64",             .name = "mmap64",             .row = does(MT_OP_MAP,          {.size = 2}), .kind = BlockKind::mapping},
    {.family = "libc", .symbol = "munmap",             .name = "munmap",             .row = does(MT_OP_UNMAP,        {.size = 2, .old = 1}), .kind = BlockKind::mapping},
    {.family = "libc", .symbol = "mremap",             .name = "mremap",             .row = does(MT_OP_REMAP,        {.size = 3, .old = 1}), .kind = BlockKind::mapping},
    // Itanium C++ ABI: plain, nothrow, aligned, aligned nothrow; the size comes first in all.
    {.family = "c++", .symbol = "_Znwm",                              .name = "operator new",   .row = does(MT_OP_DELEGATE, {.size = 1})},
    {.family = "c++", .symbol = "_ZnwmRKSt9nothrow_t",                .name = "operator new",   .row = does(MT_OP_DELEGATE, {.size = 1})},
    {.family = "c++", .symbol = "_ZnwmSt11align_val_t",               .name = "operator new",   .row = does(MT_OP_DELEGATE, {.size = 1})},
    {.family = "c++", .symbol = "_ZnwmSt11align_val_tRKSt9nothrow_t", .name = "operator new",   .row = does(MT_OP_DELEGATE, {.size = 1})},
    {.family = "c++", .symbol = "_Znam",                              .name = "operator new[]", .row = does(MT_OP_DELEGATE, {.size = 1})},
    {.family = "c++", .symbol = "_ZnamRKSt9nothrow_t",                .name = "operator new[]", .row = does(MT_OP_DELEGATE, {.size = 1})},
    {.family = "c++", .symbol = "_ZnamSt11align_val_t",               .name = "operator new[]", .row = does(MT_OP_DELEGATE, {.size = 1})},
    {.family = "c++", .symbol = "_ZnamSt11align_val_tRKSt9nothrow_t", .name = "operator new[]", .row = does(MT_OP_DELEGATE, {.size = 1})},
});
// clang-format on

constexpr bool table_is_right() {
    if (table.size() > MT_MAX_ROWS || !is_reserved_row(table[0])) return false;
    for (size_t index = 1; index < table.size(); ++index) {
        if (!is_right_row(table[index])) return false;
        for (size_t other = 1; other < index; ++other)
            if (table[other].symbol == table[index].symbol) return false;
    }
    return true;
}
static_assert(table_is_right(), "a row of the table of allocators contradicts its operation (see is_right_row)");

}  // namespace

std::span<const AllocatorFunction> allocator_table() {
    return table;
}

}  // namespace memtrace
