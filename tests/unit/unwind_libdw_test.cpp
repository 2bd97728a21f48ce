// Unwind tables against libdw's own answer, row by row, over files that nobody here wrote.
#include <algorithm>

#include "catch.hpp"
#include "unit/unwind_libdw.hpp"

using namespace memtrace;
using namespace memtrace::unwind_test;

namespace {

/// Rows compared, and the first few that differ.
struct Comparison {
    uint64_t rows = 0;
    uint64_t different = 0;
    std::string text;

    void check(const UnwindTable& table, uint64_t vaddr, const ExpandedRule& expected) {
        const ExpandedRule actual = expanded_at(table, vaddr);
        if (actual == expected) return;
        if (++different < 10) text += fmt::format("{:#x}: {}, libdw: {}\n", vaddr, actual.text(), expected.text());
    }
};

Comparison compare_with_libdw(const InstalledFile& file, const UnwindTable& table) {
    // Less between functions is alignment, which the row before takes.
    constexpr uint64_t least_gap_bytes = 16;
    Comparison comparison;
    for_each_libdw_row(
        file.elf.get(),
        [&](uint64_t start, uint64_t end, const ExpandedRule& expected) {
            ++comparison.rows;
            comparison.check(table, start, expected);
            comparison.check(table, end - 1, expected);
        },
        [&](uint64_t start, uint64_t end) {
            if (end - start < least_gap_bytes) return;
            comparison.check(table, start, special(MT_UNWIND_GAP));
            comparison.check(table, end - 1, special(MT_UNWIND_GAP));
        });
    return comparison;
}

/// Every row of the file, if it is installed, is libdw's; there are at least `least_rows`.
void check_file(const std::string& path, uint64_t least_rows) {
    const InstalledFile file(path);
    if (!file.elf) {
        WARN("not installed, so not compared: " << path);
        return;
    }
    const Result<UnwindTable> table = build_unwind_table(file.fd.get(), -1, UnwindRows::all);
    REQUIRE(table);
    const Comparison comparison = compare_with_libdw(file, *table);
    INFO(path << "\n" << comparison.text);
    CHECK(comparison.different == 0);
    CHECK(comparison.rows >= least_rows);
    CHECK(table->counts.functions_malformed == 0);
}

}  // namespace

TEST_CASE("every row of the C library's unwind table is libdw's", "[unwind]") {
    check_file("/usr/lib/x86_64-linux-gnu/libc.so.6", 20'000);
}

TEST_CASE("every row of the C++ library's unwind table is libdw's", "[unwind]") {
    check_file("/usr/lib/x86_64-linux-gnu/libstdc++.so.6", 20'000);
}

TEST_CASE("every row of libcrypto's unwind table, with its hand-written code, is libdw's", "[unwind]") {
    check_file("/usr/lib/x86_64-linux-gnu/libcrypto.so.3", 50'000);
}

TEST_CASE("every row of python's unwind table is libdw's", "[unwind]") {
    check_file("/usr/bin/python3.11", 50'000);
}

TEST_CASE("every row of LLVM's unwind table is libdw's", "[unwind][slow]") {
    check_file("/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1", 800'000);
}

TEST_CASE("every row of node's unwind table, with its JIT's entry code, is libdw's", "[unwind][slow]") {
    check_file("/usr/bin/node", 300'000);
}
