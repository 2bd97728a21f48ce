#include "catch.hpp"
#include "probes/allocator_families.hpp"

#include <set>
#include <string>

using namespace memtrace;

namespace {

const AllocatorFunction& function_of(std::string_view symbol) {
    for (const AllocatorFunction& function : built_in_functions())
        if (function.symbol == symbol && function.family == (symbol.starts_with("_Zn") ? "c++" : "libc"))
            return function;
    FAIL("no row for " << symbol);
    return built_in_functions()[0];
}

AllocatorFunction function_with(mt_row row) {
    AllocatorFunction function = function_of("malloc");
    function.row = row;
    return function;
}

}  // namespace

TEST_CASE("row 0 of the table is empty and all others are right", "[probes]") {
    const auto table = built_in_functions();
    REQUIRE(table.size() > 1);
    CHECK(table.size() <= MT_MAX_ROWS);
    CHECK(is_reserved_row(table[0]));
    CHECK_FALSE(is_right_row(table[0]));
    for (size_t row = 1; row < table.size(); ++row) {
        INFO(table[row].symbol);
        CHECK(is_right_row(table[row]));
        CHECK_FALSE(is_reserved_row(table[row]));
    }
}

TEST_CASE("size, count, old block and result are where the functions' manuals have them", "[probes]") {
    const auto arguments = [](std::string_view symbol) {
        const mt_row& row = function_of(symbol).row;
        return std::to_string(row.size_argument) + std::to_string(row.count_argument) +
               std::to_string(row.old_argument) + std::to_string(row.out_argument);
    };
    CHECK(arguments("malloc") == "1000");
    CHECK(arguments("calloc") == "2100");
    CHECK(arguments("realloc") == "2010");
    CHECK(arguments("reallocarray") == "3210");
    CHECK(arguments("free") == "0010");
    CHECK(arguments("free_aligned_sized") == "0010");
    CHECK(arguments("posix_memalign") == "3001");
    CHECK(arguments("aligned_alloc") == "2000");
    CHECK(arguments("memalign") == "2000");
    CHECK(arguments("valloc") == "1000");
    CHECK(arguments("mmap64") == "2000");
    CHECK(arguments("munmap") == "2010");
    CHECK(arguments("mremap") == "3010");
    CHECK(arguments("brk") == "0010");
    CHECK(arguments("sbrk") == "1000");
    CHECK(arguments("mprotect") == "2010");
    CHECK(arguments("madvise") == "2010");
    CHECK(arguments("shmat") == "0000");
    CHECK(arguments("shmdt") == "0010");
    CHECK(arguments("_ZnamSt11align_val_tRKSt9nothrow_t") == "1000");
}

TEST_CASE("returns are probed where the result is known only then, and never through an exception", "[probes]") {
    for (const char* symbol : {"malloc", "calloc", "realloc", "posix_memalign", "mmap", "munmap", "mremap", "brk",
                               "sbrk", "mprotect", "madvise", "shmat", "shmdt"})
        CHECK(needs_return(function_of(symbol).row));
    for (const char* symbol : {"free", "cfree", "free_sized", "_Znwm", "_ZnamRKSt9nothrow_t"})
        CHECK_FALSE(needs_return(function_of(symbol).row));
    CHECK_FALSE(needs_return(built_in_functions()[0].row));
}

TEST_CASE("functions that only give back are attached first", "[probes]") {
    for (const char* symbol : {"free", "cfree", "free_sized", "free_aligned_sized", "munmap", "shmdt"})
        CHECK(frees(function_of(symbol).row));
    for (const char* symbol : {"malloc", "realloc", "reallocarray", "mremap", "mmap", "_Znwm"})
        CHECK_FALSE(frees(function_of(symbol).row));
}

TEST_CASE("argument registers are those that the kernel side reads", "[probes]") {
    CHECK(argument_registers(function_of("malloc").row) == 0b1);
    CHECK(argument_registers(function_of("calloc").row) == 0b11);
    CHECK(argument_registers(function_of("posix_memalign").row) == 0b101);
    CHECK(argument_registers(function_of("reallocarray").row) == 0b111);
    CHECK(argument_registers(function_of("free_sized").row) == 0b1);
    CHECK(argument_registers(function_of("mmap").row) == 0b111111);
    CHECK(argument_registers(function_of("munmap").row) == 0b11);
    CHECK(argument_registers(function_of("mremap").row) == 0b11111);
    CHECK(argument_registers(function_of("mprotect").row) == 0b111);
    CHECK(argument_registers(function_of("sbrk").row) == 0b1);
}

TEST_CASE("a row that contradicts its operation is refused", "[probes]") {
    const mt_row good = function_of("malloc").row;
    REQUIRE(is_right_row(function_with(good)));
    const auto refuses = [](mt_row row) { return !is_right_row(function_with(row)); };

    CHECK(refuses({MT_OP_NONE, 1, 0, 0, 0, 0, {}, 0, 0}));
    CHECK(refuses({MT_OP_ALLOCATE, 0, 0, 0, 0, 0, {}, 0, 0}));
    CHECK(refuses({MT_OP_ALLOCATE, 1, 0, 2, 0, 0, {}, 0, 0}));
    CHECK(refuses({MT_OP_ALLOCATE, 7, 0, 0, 0, 0, {}, 0, 0}));
    CHECK(refuses({MT_OP_ALLOCATE, 1, 1, 0, 0, 0, {}, 0, 0}));
    CHECK(refuses({MT_OP_ALLOCATE, 1, 0, 0, 0, 0, {0, 1}, 0, 0}));
    CHECK(refuses({MT_OP_FREE, 0, 0, 0, 0, 0, {}, 0, 0}));
    CHECK(refuses({MT_OP_FREE, 2, 0, 1, 0, 0, {}, 0, 0}));
    CHECK(refuses({MT_OP_REALLOCATE, 2, 0, 0, 0, 0, {}, 0, 0}));
    CHECK(refuses({MT_OP_REALLOCATE, 0, 0, 1, 0, 0, {}, 0, 0}));
    CHECK(refuses({MT_OP_ALLOCATE_OUT, 3, 0, 0, 0, 0, {}, 0, 0}));
    CHECK(refuses({MT_OP_DELEGATE, 0, 0, 0, 0, 0, {}, 0, 0}));
    CHECK(refuses({200, 1, 0, 0, 0, 0, {}, 0, 0}));
    CHECK(refuses(function_of("mmap").row));  // of kind heap
}

TEST_CASE("a mapping's row is refused unless its arguments are mmap's, munmap's or mremap's", "[probes]") {
    const auto refuses = [](mt_row row) {
        AllocatorFunction function = function_of("mmap");
        function.row = row;
        return !is_right_row(function);
    };
    CHECK_FALSE(refuses({MT_OP_MAP, 2, 0, 0, 0, 0, {}, 0, 0}));
    CHECK(refuses({MT_OP_MAP, 1, 0, 0, 0, 0, {}, 0, 0}));
    CHECK(refuses({MT_OP_UNMAP, 2, 0, 0, 0, 0, {}, 0, 0}));
    CHECK(refuses({MT_OP_REMAP, 2, 0, 1, 0, 0, {}, 0, 0}));
    CHECK(refuses({MT_OP_PROTECT, 0, 0, 1, 0, 0, {}, 0, 0}));
    CHECK(refuses({MT_OP_ADVISE, 3, 0, 1, 0, 0, {}, 0, 0}));
    CHECK(refuses({MT_OP_BREAK, 1, 0, 0, 0, 0, {}, 0, 0}));
    CHECK(refuses({MT_OP_MOVE_BREAK, 0, 0, 1, 0, 0, {}, 0, 0}));
    CHECK(refuses({MT_OP_ATTACH, 1, 0, 0, 0, 0, {}, 0, 0}));
    CHECK(refuses({MT_OP_DETACH, 0, 0, 0, 0, 0, {}, 0, 0}));
    CHECK(refuses({MT_OP_ALLOCATE, 2, 0, 0, 0, 0, {}, 0, 0}));
}

TEST_CASE("only a free may say that NULL does nothing, and a row needs its names", "[probes]") {
    AllocatorFunction function = function_of("realloc");
    function.null_does_nothing = true;
    CHECK_FALSE(is_right_row(function));
    for (auto member : {&AllocatorFunction::family, &AllocatorFunction::symbol, &AllocatorFunction::name}) {
        AllocatorFunction nameless = function_of("free");
        REQUIRE(is_right_row(nameless));
        nameless.*member = "";
        CHECK_FALSE(is_right_row(nameless));
    }
}
