#include "catch.hpp"
#include "probes/elf_file.hpp"

#include <fcntl.h>

#include <fstream>
#include <iterator>
#include <numeric>
#include <random>

#include "probes/resolve.hpp"
#include "probes_test_elf.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

TestElf small_elf() {
    TestElf elf;
    elf.code = {0x55, 0x5d, 0xc3, 0x90, 0x48, 0x89, 0xf8, 0xc3, 0x53, 0x5b, 0xc3};
    elf.symbols = {{.name = "malloc", .vaddr = TestElf::code_vaddr, .size_bytes = 3},
                   {.name = "free", .vaddr = TestElf::code_vaddr + 4, .size_bytes = 4, .is_dynamic = false}};
    elf.interpreter = "/lib64/ld-linux-x86-64.so.2";
    elf.build_id = {0xde, 0xad, 0xbe, 0xef, 0x00, 0x0f};
    return elf;
}

Result<ElfFile> open_bytes(std::span<const uint8_t> content) {
    // The descriptor is closed at once: an ElfFile must not depend on its caller's.
    return ElfFile::open(file_of(content).get(), "test file");
}

Error error_of(std::string_view content) {
    auto file = ElfFile::open(file_of(content).get(), "test file");
    REQUIRE_FALSE(file);
    return file.error();
}

/// Reads all that there is to read; what it finds does not matter, that it comes back does.
void read_everything(std::span<const uint8_t> content) {
    auto file = open_bytes(content);
    if (!file) {
        CHECK_FALSE(file.error().why.empty());
        CHECK(file.error().why.find('\n') == std::string::npos);
        return;
    }
    file->build_id();
    file->interpreter();
    file->is_static();
    if (auto points = find_probe_points(*file, AllocatorTable()))
        for (const ProbePoint& point : points->points)
            CHECK(point.placement.offset < 64 << 10);
    else
        CHECK_FALSE(points.error().why.empty());
}

std::vector<uint8_t> content_of(const char* path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace

TEST_CASE("an ELF file tells its functions, code, build-id and interpreter", "[probes]") {
    const auto file = open_bytes(small_elf().bytes());
    REQUIRE(file);
    const auto functions = file->functions();
    REQUIRE(functions);
    REQUIRE(functions->size() == 2);
    CHECK((*functions)[0].name == "malloc");
    CHECK((*functions)[0].vaddr == TestElf::code_vaddr);
    CHECK((*functions)[0].size_bytes == 3);
    CHECK((*functions)[1].name == "free");
    CHECK_FALSE((*functions)[1].is_ifunc);
    CHECK(file->build_id() == "deadbeef000f");
    CHECK(file->interpreter() == "/lib64/ld-linux-x86-64.so.2");
    CHECK_FALSE(file->is_static());
    CHECK(file->name() == "test file");
}

TEST_CASE("addresses become file offsets by the executable segment that has them", "[probes]") {
    const auto file = open_bytes(small_elf().bytes());
    REQUIRE(file);
    CHECK(file->file_offset(TestElf::code_vaddr + 4) == TestElf::code_offset + 4);
    CHECK(file->file_offset(TestElf::code_vaddr + 10) == TestElf::code_offset + 10);
    CHECK_FALSE(file->file_offset(TestElf::code_vaddr + 11));
    CHECK_FALSE(file->file_offset(TestElf::code_vaddr - 1));
    CHECK_FALSE(file->file_offset(0));
    CHECK(file->code(TestElf::code_vaddr, 3).value() == std::vector<uint8_t>{0x55, 0x5d, 0xc3});
    CHECK(file->code(TestElf::code_vaddr + 8, 1000).value() == std::vector<uint8_t>{0x53, 0x5b, 0xc3});
    CHECK(file->code(TestElf::code_vaddr + 8, UINT64_MAX).value().size() == 3);
    CHECK_FALSE(file->code(0, 4));
}

TEST_CASE("what a file defines is its function, shown to others or not", "[probes]") {
    TestElf elf = small_elf();
    const uint64_t here = TestElf::code_vaddr;
    elf.symbols = {{.name = "plt_stub", .vaddr = here, .size_bytes = 1, .section = SHN_UNDEF},
                   {.name = "absolute", .vaddr = here, .size_bytes = 1, .section = SHN_ABS},
                   {.name = "data", .vaddr = here, .size_bytes = 1, .type = STT_OBJECT},
                   {.name = "own", .vaddr = here, .size_bytes = 1, .is_dynamic = false, .binding = STB_LOCAL},
                   {.name = "weak", .vaddr = here, .size_bytes = 1, .binding = STB_WEAK},
                   {.name = "indirect", .vaddr = here, .size_bytes = 1, .type = STT_GNU_IFUNC},
                   {.name = "versioned@@LIB_2", .vaddr = here, .size_bytes = 1, .is_dynamic = false}};
    const auto file = open_bytes(elf.bytes());
    REQUIRE(file);
    const auto functions = file->functions();
    REQUIRE(functions);
    REQUIRE(functions->size() == 4);
    CHECK((*functions)[0].name == "weak");
    CHECK((*functions)[1].name == "indirect");
    CHECK((*functions)[1].is_ifunc);
    CHECK((*functions)[2].name == "own");
    CHECK((*functions)[3].name == "versioned");
}

TEST_CASE("a program without a dynamic linker is static, a library without one is not", "[probes]") {
    TestElf elf = small_elf();
    elf.interpreter.clear();
    CHECK_FALSE(open_bytes(elf.bytes()).value().is_static());
    elf.file_type = ET_EXEC;
    CHECK(open_bytes(elf.bytes()).value().is_static());
    elf.interpreter = "/lib/ld.so";
    CHECK_FALSE(open_bytes(elf.bytes()).value().is_static());
    elf.build_id.clear();
    CHECK(open_bytes(elf.bytes()).value().build_id().empty());
}

TEST_CASE("what is no x86-64 ELF file is named in one line", "[probes]") {
    CHECK(error_of("").why == "the file is empty");
    CHECK(error_of("#!/bin/sh\necho a script\n").why == "not an ELF file");
    CHECK(error_of("\x7f"
                   "ELF")
              .why == "not an ELF file");
    CHECK(error_of("#!").what == "test file");
    CHECK_FALSE(error_of("#!").hint.empty());
    TestElf elf = small_elf();
    elf.file_type = ET_REL;
    CHECK(open_bytes(elf.bytes()).error().why == "neither a program nor a shared library");
    auto other_machine = small_elf().bytes();
    other_machine[offsetof(Elf64_Ehdr, e_machine)] = EM_AARCH64;
    CHECK(open_bytes(other_machine).error().why == "ELF for another machine (number 183)");
    const Fd directory(::open("/", O_RDONLY | O_CLOEXEC));
    CHECK(ElfFile::open(directory.get(), "/").error().why == "not a regular file");
    CHECK_FALSE(ElfFile::open(-1, "nothing").error().why.empty());
}

TEST_CASE("a damaged symbol table is an error, not a file without functions", "[probes]") {
    auto content = small_elf().bytes();
    Elf64_Ehdr header;
    std::memcpy(&header, content.data(), sizeof header);
    Elf64_Shdr names;
    const size_t names_offset = header.e_shoff + 3 * sizeof names;
    std::memcpy(&names, content.data() + names_offset, sizeof names);
    names.sh_offset = UINT64_MAX - 8;
    overwrite(content, names_offset, names);
    const auto file = open_bytes(content);
    REQUIRE(file);
    const auto functions = file->functions();
    REQUIRE_FALSE(functions);
    CHECK_THAT(functions.error().why, ContainsSubstring("damaged"));
}

TEST_CASE("every prefix of an ELF file is read without harm", "[probes]") {
    const auto whole = small_elf().bytes();
    for (size_t length = 0; length <= whole.size(); length += length < 128 || length > 0x1000 ? 1 : 61)
        read_everything(std::span(whole).first(length));
    const auto real = content_of("/bin/true");
    REQUIRE_FALSE(real.empty());
    for (size_t length = 0; length <= real.size(); length += 197)
        read_everything(std::span(real).first(length));
}

TEST_CASE("an ELF file with any bytes flipped is read without harm", "[probes]") {
    std::mt19937 random(20261);  // NOLINT(cert-msc51-cpp): the same bytes in every run
    const auto flip_and_read = [&](const std::vector<uint8_t>& whole, const std::vector<size_t>& places) {
        auto content = whole;
        for (size_t flips = 1 + random() % 8; flips > 0; --flips) {
            const uint8_t extreme = random() % 2 == 0 ? 0xff : 0x00;
            content[places[random() % places.size()]] = random() % 2 == 0 ? static_cast<uint8_t>(random()) : extreme;
        }
        read_everything(content);
    };
    // The headers and tables are where a flip does something; the filling before the code is not.
    const auto made = small_elf().bytes();
    std::vector<size_t> places;
    for (size_t place = 0; place < made.size(); ++place)
        if (place < 256 || place >= TestElf::code_offset) places.push_back(place);
    for (int round = 0; round < 4000; ++round)
        flip_and_read(made, places);
    const auto real = content_of("/bin/true");
    places.resize(0x1000);
    std::iota(places.begin(), places.end(), 0);
    for (size_t place = real.size() - 0x800; place < real.size(); ++place)
        places.push_back(place);
    for (int round = 0; round < 1000; ++round)
        flip_and_read(real, places);
}
