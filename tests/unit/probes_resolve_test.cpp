#include "catch.hpp"
#include "probes/resolve.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>

#include "probes/allocators.hpp"
#include "probes_test_elf.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

constexpr const char* libc_path = "/lib/x86_64-linux-gnu/libc.so.6";
constexpr const char* libstdcxx_path = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6";

/// The library of this machine; none (and a warning) where it is kept elsewhere.
std::optional<ElfFile> library(const char* path) {
    const Fd fd(::open(path, O_RDONLY | O_CLOEXEC));
    if (!fd) {
        WARN(path << " does not exist here: not tested");
        return std::nullopt;
    }
    auto file = ElfFile::open(fd.get(), path);
    REQUIRE(file);
    return std::move(file).value();
}

/// A C library's: what throws nothing has return probes.
TestElf as_libc(TestElf elf) {
    elf.symbols.push_back({.name = "__libc_start_main", .vaddr = TestElf::code_vaddr, .size_bytes = 1});
    return elf;
}

std::vector<ProbePoint> points_of(const TestElf& elf) {
    auto file = ElfFile::open(file_of(as_libc(elf).bytes()).get(), "test file");
    REQUIRE(file);
    auto found = find_probe_points(*file, AllocatorTable());
    REQUIRE(found);
    return found->points;
}

std::vector<SkippedFunction> skipped_of(const TestElf& elf) {
    auto file = ElfFile::open(file_of(as_libc(elf).bytes()).get(), "test file");
    REQUIRE(file);
    auto found = find_probe_points(*file, AllocatorTable());
    REQUIRE(found);
    return found->skipped;
}

const ProbePoint* find(const std::vector<ProbePoint>& points, std::string_view symbol) {
    const auto found = std::ranges::find(points, symbol, &ProbePoint::symbol);
    return found == points.end() ? nullptr : &*found;
}

/// Addresses at which binutils sees an instruction begin; empty where there is no objdump.
std::set<uint64_t> instruction_addresses(const char* path, uint64_t first, uint64_t end) {
    const std::string command = fmt::format(
        "objdump -d --no-show-raw-insn --start-address={} --stop-address={} {} 2>/dev/null", first, end, path);
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
    std::set<uint64_t> addresses;
    char line[4096];
    uint64_t address = 0;
    char colon = 0;
    while (pipe && std::fgets(line, sizeof line, pipe.get()) != nullptr)
        if (std::sscanf(line, " %lx%c\t", &address, &colon) == 2 && colon == ':') addresses.insert(address);
    return addresses;
}

void check_points(const char* path, const std::vector<ProbePoint>& points) {
    std::set<uint64_t> places;
    for (const ProbePoint& point : points) {
        INFO(path << " " << point.symbol << "+" << point.placement.offset);
        CHECK(places.insert(point.file_offset).second);
        CHECK(AllocatorTable()[point.row].symbol == point.symbol);
        CHECK((point.placement.is_emulated || point.placement.offset == 0));
        CHECK(point.placement.offset < point.function_size);
        CHECK_FALSE(point.placement.instruction.empty());
        const uint64_t place = point.symbol_vaddr + point.placement.offset;
        const auto addresses = instruction_addresses(path, point.symbol_vaddr, place + 16);
        if (addresses.empty())
            WARN("no objdump here: boundaries are not compared");
        else
            CHECK(addresses.count(place) == 1);
    }
    CHECK(std::ranges::is_sorted(points, {}, &ProbePoint::row));
}

}  // namespace

TEST_CASE("this machine's libc has a probe for each of its allocator functions, on a boundary", "[probes]") {
    const auto file = library(libc_path);
    if (!file) return;
    const auto found = find_probe_points(*file, AllocatorTable());
    REQUIRE(found);
    const auto* points = &found->points;
    for (const char* symbol : {"malloc", "calloc", "realloc", "reallocarray", "free", "posix_memalign", "aligned_alloc",
                               "valloc", "pvalloc", "mmap", "munmap", "mremap"})
        CHECK(find(*points, symbol) != nullptr);
    CHECK(find(*points, "_Znwm") == nullptr);
    check_points(libc_path, *points);
    CHECK(found->skipped.empty());
    CHECK(found->allocator.family == "libc");
}

TEST_CASE("this machine's libc gets one probe where several names mean one function", "[probes]") {
    const auto file = library(libc_path);
    if (!file) return;
    const auto found = find_probe_points(*file, AllocatorTable());
    REQUIRE(found);
    const auto* points = &found->points;
    const auto functions = file->functions();
    REQUIRE(functions);
    // glibc has memalign, mmap64 and, up to 2.25 and as an old version, cfree at the place of another.
    for (const char* alias : {"memalign", "mmap64", "cfree"})
        for (const FunctionSymbol& function : *functions)
            if (function.name == alias)
                CHECK(std::ranges::count(*points, function.vaddr, &ProbePoint::symbol_vaddr) == 1);
}

TEST_CASE("this machine's operator new is probed in all its forms and operator delete in none", "[probes]") {
    const auto file = library(libstdcxx_path);
    if (!file) return;
    const auto found = find_probe_points(*file, AllocatorTable());
    REQUIRE(found);
    const auto* points = &found->points;
    CHECK(points->size() == 10);  // with std::get_new_handler and std::set_new_handler
    check_points(libstdcxx_path, *points);
}

TEST_CASE("the places measured on Debian 12's libc are found in it", "[probes]") {
    const auto file = library(libc_path);
    if (!file || file->build_id() != "93ac61ec5a8eb1396f9fbd350e3169a558528a40") return;  // 2.36-9+deb12u14
    const auto found = find_probe_points(*file, AllocatorTable());
    REQUIRE(found);
    const auto* points = &found->points;
    const auto offset = [&](std::string_view symbol) { return find(*points, symbol)->placement.offset; };
    CHECK(offset("malloc") == 0);
    CHECK(offset("free") == 9);
    CHECK(offset("posix_memalign") == 7);
    CHECK(offset("mmap") == 10);
    CHECK_FALSE(find(*points, "munmap")->placement.is_emulated);
    CHECK_FALSE(find(*points, "mremap")->placement.is_emulated);
}

TEST_CASE("names at one address are one point of the row that comes first", "[probes]") {
    TestElf elf;
    elf.code = {0x55, 0x5d, 0xc3, 0x90, 0x55, 0x5d, 0xc3};
    const uint64_t here = TestElf::code_vaddr;
    elf.symbols = {{.name = "memalign", .vaddr = here, .size_bytes = 3},
                   {.name = "aligned_alloc", .vaddr = here, .size_bytes = 3},
                   {.name = "aligned_alloc", .vaddr = here, .size_bytes = 3, .is_dynamic = false},
                   {.name = "cfree", .vaddr = here + 4, .size_bytes = 3},
                   {.name = "free", .vaddr = here + 4, .size_bytes = 3}};
    const auto points = points_of(elf);
    REQUIRE(points.size() == 2);
    CHECK(points[0].symbol == "free");
    CHECK(points[0].file_offset == TestElf::code_offset + 4);
    CHECK(points[1].symbol == "aligned_alloc");
    CHECK(points[1].function_size == 3);
}

TEST_CASE("two versions of a function at two addresses are two points", "[probes]") {
    TestElf elf;
    elf.code = {0x55, 0x5d, 0xc3, 0x90, 0x55, 0x5d, 0xc3};
    elf.symbols = {
        {.name = "malloc@@V_2", .vaddr = TestElf::code_vaddr + 4, .size_bytes = 3, .is_dynamic = false},
        {.name = "malloc@V_1", .vaddr = TestElf::code_vaddr, .size_bytes = 3, .is_dynamic = false},
    };
    const auto points = points_of(elf);
    REQUIRE(points.size() == 2);
    CHECK(points[0].symbol_vaddr == TestElf::code_vaddr);
    CHECK(points[1].symbol_vaddr == TestElf::code_vaddr + 4);
    CHECK(points[0].row == points[1].row);
}

TEST_CASE("a static program's allocator is found in its static symbols", "[probes]") {
    TestElf elf;
    elf.file_type = ET_EXEC;
    elf.code = {0x48, 0x89, 0xc0, 0x55, 0x5d, 0xc3};
    elf.symbols = {{.name = "malloc", .vaddr = TestElf::code_vaddr, .size_bytes = 6, .is_dynamic = false}};
    const auto points = points_of(elf);
    REQUIRE(points.size() == 1);
    CHECK(points[0].placement.offset == 3);
    CHECK(points[0].file_offset == TestElf::code_offset + 3);
    CHECK(points[0].symbol_vaddr == TestElf::code_vaddr);
}

TEST_CASE("a file that only calls an allocator has no point", "[probes]") {
    TestElf elf;
    elf.code = {0x55, 0x5d, 0xc3};
    elf.symbols = {{.name = "malloc", .vaddr = 0, .section = SHN_UNDEF},
                   {.name = "free", .vaddr = TestElf::code_vaddr, .section = SHN_UNDEF},
                   {.name = "main", .vaddr = TestElf::code_vaddr, .size_bytes = 3}};
    CHECK(points_of(elf).empty());
    CHECK(skipped_of(elf).empty());
}

TEST_CASE("what cannot be probed is skipped with a reason", "[probes]") {
    TestElf elf;
    elf.code = {0x0f, 0x05, 0xc3, 0x90, 0x55, 0xc3};
    const uint64_t here = TestElf::code_vaddr;
    elf.symbols = {{.name = "malloc", .vaddr = here + 4, .size_bytes = 2, .type = STT_GNU_IFUNC},
                   {.name = "calloc", .vaddr = here, .size_bytes = 3},
                   {.name = "realloc", .vaddr = 0x10, .size_bytes = 3}};
    CHECK(points_of(elf).empty());
    const auto skipped = skipped_of(elf);
    REQUIRE(skipped.size() == 3);
    CHECK(skipped[0].symbol == "malloc");
    CHECK_THAT(skipped[0].reason, ContainsSubstring("STT_GNU_IFUNC"));
    CHECK(skipped[1].symbol == "calloc");
    CHECK_THAT(skipped[1].reason, ContainsSubstring("first instruction"));
    CHECK(skipped[2].symbol == "realloc");
    CHECK_THAT(skipped[2].reason, ContainsSubstring("0x10"));
}

TEST_CASE("a place that another symbol names is not passed, nor is a function's end", "[probes]") {
    TestElf elf;
    elf.code = {0x48, 0x89, 0xc0, 0x55, 0x5d, 0xc3};
    const uint64_t here = TestElf::code_vaddr;
    elf.symbols = {{.name = "malloc", .vaddr = here, .size_bytes = 6},
                   {.name = "malloc_without_check", .vaddr = here + 3, .size_bytes = 3}};
    CHECK_FALSE(points_of(elf)[0].placement.is_emulated);
    elf.symbols = {{.name = "malloc", .vaddr = here, .size_bytes = 3}};
    CHECK_FALSE(points_of(elf)[0].placement.is_emulated);
    elf.symbols = {{.name = "malloc", .vaddr = here, .size_bytes = 0}};
    CHECK(points_of(elf)[0].placement.offset == 3);
}

TEST_CASE("a file with more definitions than an allocator can have is an error", "[probes]") {
    TestElf elf;
    elf.code.assign(4096, 0x90);
    for (uint64_t index = 0; index < 2000; ++index)
        elf.symbols.push_back({.name = "malloc", .vaddr = TestElf::code_vaddr + index, .size_bytes = 1});
    const auto file = ElfFile::open(file_of(elf.bytes()).get(), "test file");
    REQUIRE(file);
    const auto points = find_probe_points(*file, AllocatorTable());
    REQUIRE_FALSE(points);
    CHECK(points.error().what == "test file");
}

TEST_CASE("an allocator that nothing is known of has its returns seen at its return instructions", "[probes]") {
    TestElf elf;
    // push, jne to the second ret, pop, ret, data, pop, ret.
    elf.code = {0x55, 0x75, 0x04, 0x5d, 0xc3, 0xc3, 0xc3, 0x5d, 0xc3};
    const uint64_t here = TestElf::code_vaddr;
    elf.symbols = {{.name = "malloc", .vaddr = here, .size_bytes = 9}};
    const auto file = ElfFile::open(file_of(elf.bytes()).get(), "test file");
    REQUIRE(file);
    const auto found = find_probe_points(*file, AllocatorTable());
    REQUIRE(found);
    CHECK(found->allocator.family == "custom");
    REQUIRE(found->points.size() == 3);
    CHECK(found->points[0].kind == PointKind::entry);
    CHECK(found->points[1].kind == PointKind::return_instruction);
    CHECK(found->points[1].symbol_vaddr == here + 4);
    CHECK(found->points[2].symbol_vaddr == here + 8);

    // The jump leads into the middle of the pop's neighbour: something is no instruction.
    elf.code = {0x55, 0x75, 0x01, 0x48, 0x89, 0xc0, 0xc3};
    elf.symbols = {{.name = "malloc", .vaddr = here, .size_bytes = 7}};
    const auto wrong = ElfFile::open(file_of(elf.bytes()).get(), "test file");
    const auto refused = find_probe_points(*wrong, AllocatorTable());
    REQUIRE(refused);
    CHECK(refused->points.empty());
    REQUIRE(refused->skipped.size() == 1);
    CHECK_THAT(refused->skipped[0].reason, ContainsSubstring("a jump into an instruction"));
}

TEST_CASE("longjmp is watched where the user has a pool, and nowhere else", "[probes]") {
    AllocatorTable table;
    CHECK(table.find("longjmp", {"libc", true}, "libc.so.6") == 0);
    AllocatorFunction pool{.family = "user", .symbol = "pool_get", .name = "pool_get"};
    pool.row.operation = MT_OP_ALLOCATE;
    pool.row.size_argument = 1;
    REQUIRE(table.add_function(pool));
    for (const char* symbol : {"longjmp", "_longjmp", "siglongjmp", "__longjmp_chk"})
        CHECK(table[table.find(symbol, {"libc", true}, "libc.so.6")].row.operation == MT_OP_THROW);
    CHECK(table.rows().size() == AllocatorTable().rows().size() + 1 + AllocatorTable::jump_rows);
}
