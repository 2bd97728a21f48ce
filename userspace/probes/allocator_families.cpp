#include "probes/allocator_families.hpp"

#include <array>

namespace memtrace {
namespace {

struct Arguments {
    mt_u8 size = 0;
    mt_u8 count = 0;
    mt_u8 old = 0;
    mt_u8 out = 0;
};

constexpr mt_row does(mt_operation operation, Arguments argument, mt_u8 flags = 0) {
    mt_row row{};
    row.operation = static_cast<mt_u8>(operation);
    row.size_argument = argument.size;
    row.count_argument = argument.count;
    row.old_argument = argument.old;
    row.out_argument = argument.out;
    row.flags = flags;
    return row;
}

constexpr mt_row allocates(Arguments argument) {
    return does(MT_OP_ALLOCATE, argument);
}

constexpr mt_row reallocates(Arguments argument, mt_u8 flags = 0) {
    return does(MT_OP_REALLOCATE, argument, flags);
}

/// Of a garbage-collected heap.
constexpr mt_row collected(Arguments argument) {
    return does(MT_OP_ALLOCATE, argument, MT_ROW_COLLECTED);
}

/// Of functions that throw std::bad_alloc.
constexpr mt_row allocates_or_throws(Arguments argument) {
    return does(MT_OP_ALLOCATE, argument, MT_ROW_RETURN_INSTRUCTIONS);
}

constexpr mt_row copies_string = does(MT_OP_ALLOCATE, {}, MT_ROW_SIZE_OF_STRING);
constexpr mt_row frees_first = does(MT_OP_FREE, {.old = 1});

constexpr std::string_view libc_prefixes[] = {"__libc_"};
constexpr std::string_view jemalloc_prefixes[] = {"je_", "_rjem_"};
constexpr std::string_view tcmalloc_prefixes[] = {"tc_"};
constexpr std::string_view mimalloc_prefixes[] = {"mi_"};
constexpr std::string_view snmalloc_prefixes[] = {"sn_"};
constexpr std::string_view scudo_prefixes[] = {"scudo_"};

constexpr auto families = std::to_array<AllocatorFamily>({
    {.name = "jemalloc", .prefixes = jemalloc_prefixes, .mark = "mallctl"},
    {.name = "tcmalloc", .prefixes = tcmalloc_prefixes, .alias = "tc_malloc"},
    {.name = "mimalloc", .prefixes = mimalloc_prefixes, .alias = "mi_malloc"},
    {.name = "snmalloc", .prefixes = snmalloc_prefixes, .alias = "sn_malloc"},
    {.name = "scudo", .prefixes = scudo_prefixes, .alias = "scudo_malloc"},
    {.name = "libc", .prefixes = libc_prefixes, .mark = "__libc_start_main"},
    {.name = "custom"},
});

// clang-format off
// What every allocator that takes the place of libc's has: ISO C, POSIX, and what glibc and bionic add.
constexpr auto malloc_functions = std::to_array<AllocatorFunction>({
    {.family = "*", .symbol = "malloc",             .name = "malloc",             .row = allocates({.size = 1})},
    {.family = "*", .symbol = "calloc",             .name = "calloc",             .row = allocates({.size = 2, .count = 1})},
    {.family = "*", .symbol = "realloc",            .name = "realloc",            .row = reallocates({.size = 2, .old = 1})},
    {.family = "*", .symbol = "reallocarray",       .name = "reallocarray",       .row = reallocates({.size = 3, .count = 2, .old = 1})},
    {.family = "*", .symbol = "reallocf",           .name = "reallocf",           .row = reallocates({.size = 2, .old = 1}, MT_ROW_FREES_WHEN_FAILED)},
    {.family = "*", .symbol = "free",               .name = "free",               .row = frees_first, .null_does_nothing = true},
    {.family = "*", .symbol = "cfree",              .name = "cfree",              .row = frees_first, .null_does_nothing = true},
    {.family = "*", .symbol = "posix_memalign",     .name = "posix_memalign",     .row = does(MT_OP_ALLOCATE_OUT, {.size = 3, .out = 1})},
    {.family = "*", .symbol = "aligned_alloc",      .name = "aligned_alloc",      .row = allocates({.size = 2})},
    {.family = "*", .symbol = "memalign",           .name = "memalign",           .row = allocates({.size = 2})},
    {.family = "*", .symbol = "valloc",             .name = "valloc",             .row = allocates({.size = 1})},
    {.family = "*", .symbol = "pvalloc",            .name = "pvalloc",            .row = allocates({.size = 1})},
    {.family = "*", .symbol = "free_sized",         .name = "free_sized",         .row = frees_first, .null_does_nothing = true},
    {.family = "*", .symbol = "free_aligned_sized", .name = "free_aligned_sized", .row = frees_first, .null_does_nothing = true},
    // Itanium C++ ABI: plain, nothrow, aligned, aligned nothrow; the size comes first in all. Where they are in one file
    // with malloc they need not call it.
    {.family = "*", .symbol = "_Znwm",                              .name = "operator new",      .row = allocates_or_throws({.size = 1})},
    {.family = "*", .symbol = "_ZnwmSt11align_val_t",               .name = "operator new",      .row = allocates_or_throws({.size = 1})},
    {.family = "*", .symbol = "_Znam",                              .name = "operator new[]",    .row = allocates_or_throws({.size = 1})},
    {.family = "*", .symbol = "_ZnamSt11align_val_t",               .name = "operator new[]",    .row = allocates_or_throws({.size = 1})},
    {.family = "*", .symbol = "_ZnwmRKSt9nothrow_t",                .name = "operator new",      .row = allocates_or_throws({.size = 1})},
    {.family = "*", .symbol = "_ZnwmSt11align_val_tRKSt9nothrow_t", .name = "operator new",      .row = allocates_or_throws({.size = 1})},
    {.family = "*", .symbol = "_ZnamRKSt9nothrow_t",                .name = "operator new[]",    .row = allocates_or_throws({.size = 1})},
    {.family = "*", .symbol = "_ZnamSt11align_val_tRKSt9nothrow_t", .name = "operator new[]",    .row = allocates_or_throws({.size = 1})},
    {.family = "*", .symbol = "_ZdlPv",                             .name = "operator delete",   .row = frees_first, .null_does_nothing = true},
    {.family = "*", .symbol = "_ZdlPvm",                            .name = "operator delete",   .row = frees_first, .null_does_nothing = true},
    {.family = "*", .symbol = "_ZdlPvSt11align_val_t",              .name = "operator delete",   .row = frees_first, .null_does_nothing = true},
    {.family = "*", .symbol = "_ZdlPvmSt11align_val_t",             .name = "operator delete",   .row = frees_first, .null_does_nothing = true},
    {.family = "*", .symbol = "_ZdlPvRKSt9nothrow_t",               .name = "operator delete",   .row = frees_first, .null_does_nothing = true},
    {.family = "*", .symbol = "_ZdlPvSt11align_val_tRKSt9nothrow_t", .name = "operator delete",  .row = frees_first, .null_does_nothing = true},
    {.family = "*", .symbol = "_ZdaPv",                             .name = "operator delete[]", .row = frees_first, .null_does_nothing = true},
    {.family = "*", .symbol = "_ZdaPvm",                            .name = "operator delete[]", .row = frees_first, .null_does_nothing = true},
    {.family = "*", .symbol = "_ZdaPvSt11align_val_t",              .name = "operator delete[]", .row = frees_first, .null_does_nothing = true},
    {.family = "*", .symbol = "_ZdaPvmSt11align_val_t",             .name = "operator delete[]", .row = frees_first, .null_does_nothing = true},
    {.family = "*", .symbol = "_ZdaPvRKSt9nothrow_t",               .name = "operator delete[]", .row = frees_first, .null_does_nothing = true},
    {.family = "*", .symbol = "_ZdaPvSt11align_val_tRKSt9nothrow_t", .name = "operator delete[]", .row = frees_first, .null_does_nothing = true},
    // Itanium C++ ABI, 2.4.2. It calls malloc, on behalf of nobody, while a failing operator new of the same file is in
    // flight.
    {.family = "*", .symbol = "__cxa_allocate_exception",            .name = "throw",             .row = does(MT_OP_THROW, {})},
});

// What is one allocator's alone, and what is nobody's: mappings, and operator new where it ends in another file's malloc.
constexpr auto other_functions = std::to_array<AllocatorFunction>({
    {.family = "libc", .symbol = "mmap",   .name = "mmap",   .row = does(MT_OP_MAP,   {.size = 2}), .kind = BlockKind::mapping},
    {.family = "libc", .symbol = "mmap64", .name = "mmap64", .row = does(MT_OP_MAP,   {.size = 2}), .kind = BlockKind::mapping},
    {.family = "libc", .symbol = "munmap", .name = "munmap", .row = does(MT_OP_UNMAP, {.size = 2, .old = 1}), .kind = BlockKind::mapping},
    {.family = "libc", .symbol = "mremap", .name = "mremap", .row = does(MT_OP_REMAP, {.size = 3, .old = 1}), .kind = BlockKind::mapping},
    {.family = "libc", .symbol = "brk",      .name = "brk",      .row = does(MT_OP_BREAK,      {.old = 1}), .kind = BlockKind::mapping},
    {.family = "libc", .symbol = "sbrk",     .name = "sbrk",     .row = does(MT_OP_MOVE_BREAK, {.size = 1}), .kind = BlockKind::mapping},
    {.family = "libc", .symbol = "mprotect", .name = "mprotect", .row = does(MT_OP_PROTECT,    {.size = 2, .old = 1}), .kind = BlockKind::mapping},
    {.family = "libc", .symbol = "madvise",  .name = "madvise",  .row = does(MT_OP_ADVISE,     {.size = 2, .old = 1}), .kind = BlockKind::mapping},
    {.family = "libc", .symbol = "shmat",    .name = "shmat",    .row = does(MT_OP_ATTACH,     {}), .kind = BlockKind::mapping},
    {.family = "libc", .symbol = "shmdt",    .name = "shmdt",    .row = does(MT_OP_DETACH,     {.old = 1}), .kind = BlockKind::mapping},

    // System calls, where no function of libc makes them.
    {.family = "kernel", .symbol = "mmap", .name = "mmap", .row = does(MT_OP_MAP,     {.size = 2}), .kind = BlockKind::mapping, .scope = RowScope::system_call},
    {.family = "kernel", .symbol = "munmap", .name = "munmap", .row = does(MT_OP_UNMAP,   {.size = 2, .old = 1}), .kind = BlockKind::mapping, .scope = RowScope::system_call},
    {.family = "kernel", .symbol = "mremap", .name = "mremap", .row = does(MT_OP_REMAP,   {.size = 3, .old = 1}), .kind = BlockKind::mapping, .scope = RowScope::system_call},
    {.family = "kernel", .symbol = "brk", .name = "brk", .row = does(MT_OP_BREAK,   {.old = 1}), .kind = BlockKind::mapping, .scope = RowScope::system_call},
    {.family = "kernel", .symbol = "mprotect", .name = "mprotect", .row = does(MT_OP_PROTECT, {.size = 2, .old = 1}), .kind = BlockKind::mapping, .scope = RowScope::system_call},
    {.family = "kernel", .symbol = "madvise", .name = "madvise", .row = does(MT_OP_ADVISE,  {.size = 2, .old = 1}), .kind = BlockKind::mapping, .scope = RowScope::system_call},
    {.family = "kernel", .symbol = "shmat", .name = "shmat", .row = does(MT_OP_ATTACH,  {}), .kind = BlockKind::mapping, .scope = RowScope::system_call},
    {.family = "kernel", .symbol = "shmdt", .name = "shmdt", .row = does(MT_OP_DETACH,  {.old = 1}), .kind = BlockKind::mapping, .scope = RowScope::system_call},

    // operator delete has no row here: it ends in free, which does the work.
    {.family = "c++", .symbol = "_Znwm",                              .name = "operator new",   .row = does(MT_OP_DELEGATE, {.size = 1}), .scope = RowScope::callers_of_malloc},
    {.family = "c++", .symbol = "_ZnwmRKSt9nothrow_t",                .name = "operator new",   .row = does(MT_OP_DELEGATE, {.size = 1}), .scope = RowScope::callers_of_malloc},
    {.family = "c++", .symbol = "_ZnwmSt11align_val_t",               .name = "operator new",   .row = does(MT_OP_DELEGATE, {.size = 1}), .scope = RowScope::callers_of_malloc},
    {.family = "c++", .symbol = "_ZnwmSt11align_val_tRKSt9nothrow_t", .name = "operator new",   .row = does(MT_OP_DELEGATE, {.size = 1}), .scope = RowScope::callers_of_malloc},
    {.family = "c++", .symbol = "_Znam",                              .name = "operator new[]", .row = does(MT_OP_DELEGATE, {.size = 1}), .scope = RowScope::callers_of_malloc},
    {.family = "c++", .symbol = "_ZnamRKSt9nothrow_t",                .name = "operator new[]", .row = does(MT_OP_DELEGATE, {.size = 1}), .scope = RowScope::callers_of_malloc},
    {.family = "c++", .symbol = "_ZnamSt11align_val_t",               .name = "operator new[]", .row = does(MT_OP_DELEGATE, {.size = 1}), .scope = RowScope::callers_of_malloc},
    {.family = "c++", .symbol = "_ZnamSt11align_val_tRKSt9nothrow_t", .name = "operator new[]", .row = does(MT_OP_DELEGATE, {.size = 1}), .scope = RowScope::callers_of_malloc},

    // ISO C++, [alloc.errors]: a failing operator new asks for the handler before it calls it.
    {.family = "c++", .symbol = "_ZSt15get_new_handlerv",    .name = "get_new_handler", .row = does(MT_OP_THROW, {})},
    {.family = "c++", .symbol = "_ZSt15set_new_handlerPFvvE", .name = "set_new_handler", .row = does(MT_OP_THROW, {})},

    // jemalloc(3), "Non-standard API".
    {.family = "jemalloc", .symbol = "mallocx",  .name = "mallocx",  .row = allocates({.size = 1})},
    {.family = "jemalloc", .symbol = "rallocx",  .name = "rallocx",  .row = reallocates({.size = 2, .old = 1})},
    {.family = "jemalloc", .symbol = "xallocx",  .name = "xallocx",  .row = does(MT_OP_RESIZE, {.size = 2, .old = 1})},
    {.family = "jemalloc", .symbol = "dallocx",  .name = "dallocx",  .row = frees_first},
    {.family = "jemalloc", .symbol = "sdallocx", .name = "sdallocx", .row = frees_first},

    // gperftools/tcmalloc.h.
    {.family = "tcmalloc", .symbol = "tc_malloc_skip_new_handler",   .name = "tc_malloc_skip_new_handler",   .row = allocates({.size = 1})},
    {.family = "tcmalloc", .symbol = "tc_new",                       .name = "tc_new",                       .row = allocates_or_throws({.size = 1})},
    {.family = "tcmalloc", .symbol = "tc_newarray",                  .name = "tc_newarray",                  .row = allocates_or_throws({.size = 1})},
    {.family = "tcmalloc", .symbol = "tc_new_aligned",               .name = "tc_new_aligned",               .row = allocates_or_throws({.size = 1})},
    {.family = "tcmalloc", .symbol = "tc_newarray_aligned",          .name = "tc_newarray_aligned",          .row = allocates_or_throws({.size = 1})},
    {.family = "tcmalloc", .symbol = "tc_new_nothrow",               .name = "tc_new_nothrow",               .row = allocates_or_throws({.size = 1})},
    {.family = "tcmalloc", .symbol = "tc_newarray_nothrow",          .name = "tc_newarray_nothrow",          .row = allocates_or_throws({.size = 1})},
    {.family = "tcmalloc", .symbol = "tc_new_aligned_nothrow",       .name = "tc_new_aligned_nothrow",       .row = allocates_or_throws({.size = 1})},
    {.family = "tcmalloc", .symbol = "tc_newarray_aligned_nothrow",  .name = "tc_newarray_aligned_nothrow",  .row = allocates_or_throws({.size = 1})},
    {.family = "tcmalloc", .symbol = "tc_free_sized",                .name = "tc_free_sized",                .row = frees_first, .null_does_nothing = true},
    {.family = "tcmalloc", .symbol = "tc_delete",                    .name = "tc_delete",                    .row = frees_first, .null_does_nothing = true},
    {.family = "tcmalloc", .symbol = "tc_deletearray",               .name = "tc_deletearray",               .row = frees_first, .null_does_nothing = true},
    {.family = "tcmalloc", .symbol = "tc_delete_sized",              .name = "tc_delete_sized",              .row = frees_first, .null_does_nothing = true},
    {.family = "tcmalloc", .symbol = "tc_deletearray_sized",         .name = "tc_deletearray_sized",         .row = frees_first, .null_does_nothing = true},
    {.family = "tcmalloc", .symbol = "tc_delete_aligned",            .name = "tc_delete_aligned",            .row = frees_first, .null_does_nothing = true},
    {.family = "tcmalloc", .symbol = "tc_deletearray_aligned",       .name = "tc_deletearray_aligned",       .row = frees_first, .null_does_nothing = true},
    {.family = "tcmalloc", .symbol = "tc_delete_sized_aligned",      .name = "tc_delete_sized_aligned",      .row = frees_first, .null_does_nothing = true},
    {.family = "tcmalloc", .symbol = "tc_deletearray_sized_aligned", .name = "tc_deletearray_sized_aligned", .row = frees_first, .null_does_nothing = true},
    {.family = "tcmalloc", .symbol = "tc_delete_nothrow",            .name = "tc_delete_nothrow",            .row = frees_first, .null_does_nothing = true},
    {.family = "tcmalloc", .symbol = "tc_deletearray_nothrow",       .name = "tc_deletearray_nothrow",       .row = frees_first, .null_does_nothing = true},
    {.family = "tcmalloc", .symbol = "tc_delete_aligned_nothrow",    .name = "tc_delete_aligned_nothrow",    .row = frees_first, .null_does_nothing = true},
    {.family = "tcmalloc", .symbol = "tc_deletearray_aligned_nothrow", .name = "tc_deletearray_aligned_nothrow", .row = frees_first, .null_does_nothing = true},

    // mimalloc.h, version 2.0: what it has beside a prefixed malloc family.
    {.family = "mimalloc", .symbol = "mi_zalloc",             .name = "mi_zalloc",             .row = allocates({.size = 1})},
    {.family = "mimalloc", .symbol = "mi_malloc_small",       .name = "mi_malloc_small",       .row = allocates({.size = 1})},
    {.family = "mimalloc", .symbol = "mi_zalloc_small",       .name = "mi_zalloc_small",       .row = allocates({.size = 1})},
    {.family = "mimalloc", .symbol = "mi_mallocn",            .name = "mi_mallocn",            .row = allocates({.size = 2, .count = 1})},
    {.family = "mimalloc", .symbol = "mi_malloc_aligned",     .name = "mi_malloc_aligned",     .row = allocates({.size = 1})},
    {.family = "mimalloc", .symbol = "mi_malloc_aligned_at",  .name = "mi_malloc_aligned_at",  .row = allocates({.size = 1})},
    {.family = "mimalloc", .symbol = "mi_zalloc_aligned",     .name = "mi_zalloc_aligned",     .row = allocates({.size = 1})},
    {.family = "mimalloc", .symbol = "mi_zalloc_aligned_at",  .name = "mi_zalloc_aligned_at",  .row = allocates({.size = 1})},
    {.family = "mimalloc", .symbol = "mi_calloc_aligned",     .name = "mi_calloc_aligned",     .row = allocates({.size = 2, .count = 1})},
    {.family = "mimalloc", .symbol = "mi_calloc_aligned_at",  .name = "mi_calloc_aligned_at",  .row = allocates({.size = 2, .count = 1})},
    {.family = "mimalloc", .symbol = "mi_expand",             .name = "mi_expand",             .row = reallocates({.size = 2, .old = 1})},
    {.family = "mimalloc", .symbol = "mi_reallocn",           .name = "mi_reallocn",           .row = reallocates({.size = 3, .count = 2, .old = 1})},
    {.family = "mimalloc", .symbol = "mi_rezalloc",           .name = "mi_rezalloc",           .row = reallocates({.size = 2, .old = 1})},
    {.family = "mimalloc", .symbol = "mi_recalloc",           .name = "mi_recalloc",           .row = reallocates({.size = 3, .count = 2, .old = 1})},
    {.family = "mimalloc", .symbol = "mi_realloc_aligned",    .name = "mi_realloc_aligned",    .row = reallocates({.size = 2, .old = 1})},
    {.family = "mimalloc", .symbol = "mi_realloc_aligned_at", .name = "mi_realloc_aligned_at", .row = reallocates({.size = 2, .old = 1})},
    {.family = "mimalloc", .symbol = "mi_rezalloc_aligned",   .name = "mi_rezalloc_aligned",   .row = reallocates({.size = 2, .old = 1})},
    {.family = "mimalloc", .symbol = "mi_rezalloc_aligned_at", .name = "mi_rezalloc_aligned_at", .row = reallocates({.size = 2, .old = 1})},
    {.family = "mimalloc", .symbol = "mi_recalloc_aligned",   .name = "mi_recalloc_aligned",   .row = reallocates({.size = 3, .count = 2, .old = 1})},
    {.family = "mimalloc", .symbol = "mi_recalloc_aligned_at", .name = "mi_recalloc_aligned_at", .row = reallocates({.size = 3, .count = 2, .old = 1})},
    {.family = "mimalloc", .symbol = "mi_aligned_recalloc",   .name = "mi_aligned_recalloc",   .row = reallocates({.size = 3, .count = 2, .old = 1})},
    {.family = "mimalloc", .symbol = "mi_aligned_offset_recalloc", .name = "mi_aligned_offset_recalloc", .row = reallocates({.size = 3, .count = 2, .old = 1})},
    {.family = "mimalloc", .symbol = "mi_strdup",             .name = "mi_strdup",             .row = copies_string},
    {.family = "mimalloc", .symbol = "mi_strndup",            .name = "mi_strndup",            .row = copies_string},
    {.family = "mimalloc", .symbol = "mi_heap_strdup",        .name = "mi_heap_strdup",        .row = copies_string},
    {.family = "mimalloc", .symbol = "mi_heap_strndup",       .name = "mi_heap_strndup",       .row = copies_string},
    {.family = "mimalloc", .symbol = "mi_free_size",          .name = "mi_free_size",          .row = frees_first, .null_does_nothing = true},
    {.family = "mimalloc", .symbol = "mi_free_size_aligned",  .name = "mi_free_size_aligned",  .row = frees_first, .null_does_nothing = true},
    {.family = "mimalloc", .symbol = "mi_free_aligned",       .name = "mi_free_aligned",       .row = frees_first, .null_does_nothing = true},
    {.family = "mimalloc", .symbol = "mi_new",                .name = "mi_new",                .row = allocates_or_throws({.size = 1})},
    {.family = "mimalloc", .symbol = "mi_new_aligned",        .name = "mi_new_aligned",        .row = allocates_or_throws({.size = 1})},
    {.family = "mimalloc", .symbol = "mi_new_n",              .name = "mi_new_n",              .row = allocates_or_throws({.size = 2, .count = 1})},
    {.family = "mimalloc", .symbol = "mi_new_nothrow",        .name = "mi_new_nothrow",        .row = allocates_or_throws({.size = 1})},
    {.family = "mimalloc", .symbol = "mi_new_aligned_nothrow", .name = "mi_new_aligned_nothrow", .row = allocates_or_throws({.size = 1})},
    {.family = "mimalloc", .symbol = "mi_new_realloc",        .name = "mi_new_realloc",        .row = reallocates({.size = 2, .old = 1}, MT_ROW_RETURN_INSTRUCTIONS)},
    {.family = "mimalloc", .symbol = "mi_new_reallocn",       .name = "mi_new_reallocn",       .row = reallocates({.size = 3, .count = 2, .old = 1}, MT_ROW_RETURN_INSTRUCTIONS)},
    {.family = "mimalloc", .symbol = "mi_heap_malloc",             .name = "mi_heap_malloc",             .row = allocates({.size = 2})},
    {.family = "mimalloc", .symbol = "mi_heap_zalloc",             .name = "mi_heap_zalloc",             .row = allocates({.size = 2})},
    {.family = "mimalloc", .symbol = "mi_heap_malloc_small",       .name = "mi_heap_malloc_small",       .row = allocates({.size = 2})},
    {.family = "mimalloc", .symbol = "mi_heap_calloc",             .name = "mi_heap_calloc",             .row = allocates({.size = 3, .count = 2})},
    {.family = "mimalloc", .symbol = "mi_heap_mallocn",            .name = "mi_heap_mallocn",            .row = allocates({.size = 3, .count = 2})},
    {.family = "mimalloc", .symbol = "mi_heap_malloc_aligned",     .name = "mi_heap_malloc_aligned",     .row = allocates({.size = 2})},
    {.family = "mimalloc", .symbol = "mi_heap_malloc_aligned_at",  .name = "mi_heap_malloc_aligned_at",  .row = allocates({.size = 2})},
    {.family = "mimalloc", .symbol = "mi_heap_zalloc_aligned",     .name = "mi_heap_zalloc_aligned",     .row = allocates({.size = 2})},
    {.family = "mimalloc", .symbol = "mi_heap_zalloc_aligned_at",  .name = "mi_heap_zalloc_aligned_at",  .row = allocates({.size = 2})},
    {.family = "mimalloc", .symbol = "mi_heap_calloc_aligned",     .name = "mi_heap_calloc_aligned",     .row = allocates({.size = 3, .count = 2})},
    {.family = "mimalloc", .symbol = "mi_heap_calloc_aligned_at",  .name = "mi_heap_calloc_aligned_at",  .row = allocates({.size = 3, .count = 2})},
    {.family = "mimalloc", .symbol = "mi_heap_realloc",            .name = "mi_heap_realloc",            .row = reallocates({.size = 3, .old = 2})},
    {.family = "mimalloc", .symbol = "mi_heap_reallocn",           .name = "mi_heap_reallocn",           .row = reallocates({.size = 4, .count = 3, .old = 2})},
    {.family = "mimalloc", .symbol = "mi_heap_reallocf",           .name = "mi_heap_reallocf",           .row = reallocates({.size = 3, .old = 2}, MT_ROW_FREES_WHEN_FAILED)},
    {.family = "mimalloc", .symbol = "mi_heap_rezalloc",           .name = "mi_heap_rezalloc",           .row = reallocates({.size = 3, .old = 2})},
    {.family = "mimalloc", .symbol = "mi_heap_recalloc",           .name = "mi_heap_recalloc",           .row = reallocates({.size = 4, .count = 3, .old = 2})},
    {.family = "mimalloc", .symbol = "mi_heap_realloc_aligned",    .name = "mi_heap_realloc_aligned",    .row = reallocates({.size = 3, .old = 2})},
    {.family = "mimalloc", .symbol = "mi_heap_realloc_aligned_at", .name = "mi_heap_realloc_aligned_at", .row = reallocates({.size = 3, .old = 2})},
    {.family = "mimalloc", .symbol = "mi_heap_alloc_new",          .name = "mi_heap_alloc_new",          .row = allocates_or_throws({.size = 2})},
    {.family = "mimalloc", .symbol = "mi_heap_alloc_new_n",        .name = "mi_heap_alloc_new_n",        .row = allocates_or_throws({.size = 3, .count = 2})},

    // snmalloc's glue for Rust: the alignment comes before the size.
    {.family = "snmalloc", .symbol = "sn_rust_alloc",        .name = "sn_rust_alloc",        .row = allocates({.size = 2})},
    {.family = "snmalloc", .symbol = "sn_rust_alloc_zeroed", .name = "sn_rust_alloc_zeroed", .row = allocates({.size = 2})},
    {.family = "snmalloc", .symbol = "sn_rust_realloc",      .name = "sn_rust_realloc",      .row = reallocates({.size = 4, .old = 1})},
    {.family = "snmalloc", .symbol = "sn_rust_dealloc",      .name = "sn_rust_dealloc",      .row = frees_first},

    // Rust's global allocator, alloc::alloc: (size, align), (ptr, size, align), (ptr, size, align, new_size).
    {.family = "rust", .symbol = "__rust_alloc",        .name = "__rust_alloc",        .row = allocates({.size = 1})},
    {.family = "rust", .symbol = "__rust_alloc_zeroed", .name = "__rust_alloc_zeroed", .row = allocates({.size = 1})},
    {.family = "rust", .symbol = "__rust_realloc",      .name = "__rust_realloc",      .row = reallocates({.size = 4, .old = 1})},
    {.family = "rust", .symbol = "__rust_dealloc",      .name = "__rust_dealloc",      .row = frees_first},

    // gc.h of libgc 8 (Boehm's collector). What it collects, no call gives back; GC_free is there too.
    {.family = "boehm", .symbol = "GC_malloc",                                  .name = "GC_malloc",                                  .row = collected({.size = 1}), .kind = BlockKind::gc},
    {.family = "boehm", .symbol = "GC_malloc_atomic",                           .name = "GC_malloc_atomic",                           .row = collected({.size = 1}), .kind = BlockKind::gc},
    {.family = "boehm", .symbol = "GC_malloc_kind",                             .name = "GC_malloc_kind",                             .row = collected({.size = 1}), .kind = BlockKind::gc},
    {.family = "boehm", .symbol = "GC_generic_malloc",                          .name = "GC_generic_malloc",                          .row = collected({.size = 1}), .kind = BlockKind::gc},
    {.family = "boehm", .symbol = "GC_malloc_stubborn",                         .name = "GC_malloc_stubborn",                         .row = collected({.size = 1}), .kind = BlockKind::gc},
    {.family = "boehm", .symbol = "GC_malloc_uncollectable",                    .name = "GC_malloc_uncollectable",                    .row = collected({.size = 1}), .kind = BlockKind::gc},
    {.family = "boehm", .symbol = "GC_malloc_atomic_uncollectable",             .name = "GC_malloc_atomic_uncollectable",             .row = collected({.size = 1}), .kind = BlockKind::gc},
    {.family = "boehm", .symbol = "GC_generic_malloc_uncollectable",            .name = "GC_generic_malloc_uncollectable",            .row = collected({.size = 1}), .kind = BlockKind::gc},
    {.family = "boehm", .symbol = "GC_malloc_ignore_off_page",                  .name = "GC_malloc_ignore_off_page",                  .row = collected({.size = 1}), .kind = BlockKind::gc},
    {.family = "boehm", .symbol = "GC_malloc_atomic_ignore_off_page",           .name = "GC_malloc_atomic_ignore_off_page",           .row = collected({.size = 1}), .kind = BlockKind::gc},
    {.family = "boehm", .symbol = "GC_generic_malloc_ignore_off_page",          .name = "GC_generic_malloc_ignore_off_page",          .row = collected({.size = 1}), .kind = BlockKind::gc},
    {.family = "boehm", .symbol = "GC_malloc_explicitly_typed",                 .name = "GC_malloc_explicitly_typed",                 .row = collected({.size = 1}), .kind = BlockKind::gc},
    {.family = "boehm", .symbol = "GC_malloc_explicitly_typed_ignore_off_page", .name = "GC_malloc_explicitly_typed_ignore_off_page", .row = collected({.size = 1}), .kind = BlockKind::gc},
    {.family = "boehm", .symbol = "GC_calloc_explicitly_typed",                 .name = "GC_calloc_explicitly_typed",                 .row = collected({.size = 2, .count = 1}), .kind = BlockKind::gc},
    {.family = "boehm", .symbol = "GC_gcj_malloc",                              .name = "GC_gcj_malloc",                              .row = collected({.size = 1}), .kind = BlockKind::gc},
    {.family = "boehm", .symbol = "GC_gcj_malloc_ignore_off_page",              .name = "GC_gcj_malloc_ignore_off_page",              .row = collected({.size = 1}), .kind = BlockKind::gc},
    {.family = "boehm", .symbol = "GC_finalized_malloc",                        .name = "GC_finalized_malloc",                        .row = collected({.size = 1}), .kind = BlockKind::gc, .may_return_inside = true},
    {.family = "boehm", .symbol = "GC_memalign",                                .name = "GC_memalign",                                .row = collected({.size = 2}), .kind = BlockKind::gc, .may_return_inside = true},
    {.family = "boehm", .symbol = "GC_posix_memalign",                          .name = "GC_posix_memalign",                          .row = does(MT_OP_ALLOCATE_OUT, {.size = 3, .out = 1}, MT_ROW_COLLECTED), .kind = BlockKind::gc, .may_return_inside = true},
    {.family = "boehm", .symbol = "GC_strdup",                                  .name = "GC_strdup",                                  .row = does(MT_OP_ALLOCATE, {}, MT_ROW_COLLECTED | MT_ROW_SIZE_OF_STRING), .kind = BlockKind::gc},
    {.family = "boehm", .symbol = "GC_strndup",                                 .name = "GC_strndup",                                 .row = does(MT_OP_ALLOCATE, {}, MT_ROW_COLLECTED | MT_ROW_SIZE_OF_STRING), .kind = BlockKind::gc},
    {.family = "boehm", .symbol = "GC_realloc",                                 .name = "GC_realloc",                                 .row = reallocates({.size = 2, .old = 1}, MT_ROW_COLLECTED), .kind = BlockKind::gc},
    {.family = "boehm", .symbol = "GC_free",                                    .name = "GC_free",                                    .row = does(MT_OP_FREE, {.old = 1}, MT_ROW_COLLECTED), .kind = BlockKind::gc, .null_does_nothing = true},
    {.family = "boehm", .symbol = "GC_debug_malloc",                            .name = "GC_debug_malloc",                            .row = collected({.size = 1}), .kind = BlockKind::gc, .may_return_inside = true},
    {.family = "boehm", .symbol = "GC_debug_malloc_atomic",                     .name = "GC_debug_malloc_atomic",                     .row = collected({.size = 1}), .kind = BlockKind::gc, .may_return_inside = true},
    {.family = "boehm", .symbol = "GC_debug_malloc_uncollectable",              .name = "GC_debug_malloc_uncollectable",              .row = collected({.size = 1}), .kind = BlockKind::gc, .may_return_inside = true},
    {.family = "boehm", .symbol = "GC_debug_malloc_atomic_uncollectable",       .name = "GC_debug_malloc_atomic_uncollectable",       .row = collected({.size = 1}), .kind = BlockKind::gc, .may_return_inside = true},
    {.family = "boehm", .symbol = "GC_debug_malloc_stubborn",                   .name = "GC_debug_malloc_stubborn",                   .row = collected({.size = 1}), .kind = BlockKind::gc, .may_return_inside = true},
    {.family = "boehm", .symbol = "GC_debug_malloc_ignore_off_page",            .name = "GC_debug_malloc_ignore_off_page",            .row = collected({.size = 1}), .kind = BlockKind::gc, .may_return_inside = true},
    {.family = "boehm", .symbol = "GC_debug_malloc_atomic_ignore_off_page",     .name = "GC_debug_malloc_atomic_ignore_off_page",     .row = collected({.size = 1}), .kind = BlockKind::gc, .may_return_inside = true},
    {.family = "boehm", .symbol = "GC_debug_gcj_malloc",                        .name = "GC_debug_gcj_malloc",                        .row = collected({.size = 1}), .kind = BlockKind::gc, .may_return_inside = true},
    {.family = "boehm", .symbol = "GC_debug_strdup",                            .name = "GC_debug_strdup",                            .row = does(MT_OP_ALLOCATE, {}, MT_ROW_COLLECTED | MT_ROW_SIZE_OF_STRING), .kind = BlockKind::gc, .may_return_inside = true},
    {.family = "boehm", .symbol = "GC_debug_strndup",                           .name = "GC_debug_strndup",                           .row = does(MT_OP_ALLOCATE, {}, MT_ROW_COLLECTED | MT_ROW_SIZE_OF_STRING), .kind = BlockKind::gc, .may_return_inside = true},
    {.family = "boehm", .symbol = "GC_debug_realloc",                           .name = "GC_debug_realloc",                           .row = reallocates({.size = 2, .old = 1}, MT_ROW_COLLECTED), .kind = BlockKind::gc, .may_return_inside = true},
    {.family = "boehm", .symbol = "GC_debug_free",                              .name = "GC_debug_free",                              .row = does(MT_OP_FREE, {.old = 1}, MT_ROW_COLLECTED), .kind = BlockKind::gc, .null_does_nothing = true},

    // Go 1.18 on: the objects that its runtime samples for its own heap profile; or, with --go-full, all of them.
    {.family = "go", .symbol = "runtime.setprofilebucket", .name = "Go allocation", .row = does(MT_OP_GO_SAMPLE, {}), .kind = BlockKind::gc, .scope = RowScope::go_runtime},
    {.family = "go", .symbol = "runtime.freeSpecial", .name = "runtime.freeSpecial", .row = does(MT_OP_GO_SAMPLE_END, {}), .kind = BlockKind::gc, .scope = RowScope::go_runtime},
    {.family = "go", .symbol = "runtime.mallocgc", .name = "runtime.mallocgc", .row = does(MT_OP_GO_ALLOCATE, {}, MT_ROW_COLLECTED), .kind = BlockKind::gc, .scope = RowScope::go_runtime},
    {.family = "go", .symbol = "runtime.mallocgc*SC*", .name = "runtime.mallocgc", .row = does(MT_OP_GO_ALLOCATE, {}, MT_ROW_COLLECTED), .kind = BlockKind::gc, .scope = RowScope::go_runtime},
});
// clang-format on

constexpr size_t row_count = 1 + families.size() * malloc_functions.size() + other_functions.size();

constexpr auto all_rows() {
    std::array<AllocatorFunction, row_count> rows{};
    size_t row = 1;
    for (const AllocatorFamily& family : families)
        for (const AllocatorFunction& function : malloc_functions) {
            rows[row] = function;
            rows[row].family = family.name;
            rows[row].scope = RowScope::family;
            // Of an allocator that nothing is known of, it is not known either that it throws nothing.
            if (family.name == families.back().name && needs_return(function.row))
                rows[row].row.flags |= MT_ROW_RETURN_INSTRUCTIONS;
            ++row;
        }
    for (const AllocatorFunction& function : other_functions)
        rows[row++] = function;
    return rows;
}

constexpr auto rows = all_rows();

constexpr bool rows_are_right() {
    if (rows.size() > MT_MAX_ROWS || !is_reserved_row(rows[0])) return false;
    for (size_t index = 1; index < rows.size(); ++index)
        if (!is_right_row(rows[index])) return false;
    return true;
}
static_assert(rows_are_right(), "a row contradicts its operation (see is_right_row)");

}  // namespace

std::span<const AllocatorFamily> allocator_families() {
    return families;
}

std::span<const AllocatorFunction> built_in_functions() {
    return rows;
}

}  // namespace memtrace
