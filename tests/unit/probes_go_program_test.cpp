// Go's table of functions: as the linker writes it, and damaged in every byte.
#include <cstring>

#include "catch.hpp"
#include "probes/go_program.hpp"

using namespace memtrace;

namespace {

template <typename Value>
void put(std::string& table, size_t offset, Value value) {
    if (table.size() < offset + sizeof value) table.resize(offset + sizeof value);
    std::memcpy(table.data() + offset, &value, sizeof value);
}

/// Two functions from 0x401000 on: main.first of 16 bytes, main.second of 32.
std::string made_table(uint32_t magic) {
    constexpr size_t names = 72;
    constexpr size_t functions = 112;
    constexpr uint32_t data = 64;  // behind the entries
    std::string table;
    put(table, 0, magic);
    put<uint8_t>(table, 6, 1);
    put<uint8_t>(table, 7, 8);
    put<uint64_t>(table, 8, 2);
    put<uint64_t>(table, 24, 0x401000);
    put<uint64_t>(table, 32, names);
    put<uint64_t>(table, 64, functions);
    table.resize(functions + 96);
    std::memcpy(table.data() + names, "main.first\0main.second", 23);
    const uint32_t entries[] = {0, data, 16, data + 8, 48};
    std::memcpy(table.data() + functions, entries, sizeof entries);
    const uint32_t first[] = {0, 0};
    const uint32_t second[] = {16, 11};
    std::memcpy(table.data() + functions + data, first, sizeof first);
    std::memcpy(table.data() + functions + data + 8, second, sizeof second);
    return table;
}

}  // namespace

TEST_CASE("functions of a Go program are found by name and by address", "[runtimes]") {
    for (const uint32_t magic : {0xfffffff0u, 0xfffffff1u}) {
        const auto program = GoProgram::parse(made_table(magic), "program");
        REQUIRE(program);
        const auto second = program->find("main.second");
        REQUIRE(second);
        CHECK(second->start == 0x401010);
        CHECK(second->end == 0x401030);
        CHECK(!program->find("main.third"));
        CHECK(program->at(0x401000)->name == "main.first");
        CHECK(program->at(0x40100f)->name == "main.first");
        CHECK(program->at(0x401010)->name == "main.second");
        CHECK(!program->at(0x400fff));
        CHECK(!program->at(0x401030));
        CHECK(!program->at(UINT64_MAX));
    }
}

TEST_CASE("what is no table of Go functions is refused", "[runtimes]") {
    CHECK(!GoProgram::parse("", "program"));
    CHECK(!GoProgram::parse("short", "program"));
    CHECK(!GoProgram::parse(made_table(0xfffffffb), "program"));  // Go 1.2
}

TEST_CASE("a damaged table of Go functions is read within its bounds", "[runtimes]") {
    const std::string good = made_table(0xfffffff1);
    for (size_t offset = 4; offset < good.size(); ++offset)
        for (const char value : {'\x00', '\x7f', '\xff'}) {
            std::string table = good;
            table[offset] = value;
            const auto program = GoProgram::parse(table, "program");
            if (!program) continue;
            (void)program->find("main.second");
            for (const uint64_t vaddr : {0x401000ull, 0x401020ull, 0x500000ull, ~0ull})
                (void)program->at(vaddr);
        }
    for (size_t size = 0; size < good.size(); ++size)
        if (const auto program = GoProgram::parse(good.substr(0, size), "program")) (void)program->find("main.second");
    SUCCEED();
}

TEST_CASE("one long name for all functions does not make memory of a table grow", "[runtimes]") {
    constexpr size_t names = 72;
    constexpr size_t functions = names + 4096;
    constexpr uint32_t count = 10'000;
    constexpr uint32_t data = 8 * count + 4;  // behind the entries
    std::string table = made_table(0xfffffff1).substr(0, names);
    put<uint64_t>(table, 8, count);
    put<uint64_t>(table, 64, functions);
    table.resize(functions, 'x');
    for (uint32_t number = 0; number < count; ++number) {
        put<uint32_t>(table, functions + size_t{8} * number, 16 * number);
        put<uint32_t>(table, functions + size_t{8} * number + 4, data);
    }
    put<uint32_t>(table, functions + data - 4, 16 * count);
    put<uint64_t>(table, functions + data, 0);
    const size_t table_bytes = table.size();
    const auto program = GoProgram::parse(std::move(table), "program");
    REQUIRE(program);
    size_t bytes = 0;
    for (const GoProgram::Function& function : program->functions_starting_with(""))
        bytes += function.name.size();
    CHECK(bytes > 0);
    CHECK(bytes <= table_bytes);
}
