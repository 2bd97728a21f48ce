// The look-up by page index, and what the call-site rows keep, on files of this machine.
#include <Zydis/Zydis.h>

#include <algorithm>

#include "catch.hpp"
#include "unit/unwind_libdw.hpp"
#include "unit/unwind_test_elf.hpp"

using namespace memtrace;
using namespace memtrace::unwind_test;

namespace {

/// Full addresses of the rows, from the page index: the low 16 bits do not say them.
std::vector<uint64_t> row_vaddrs(const UnwindTable& table) {
    std::vector<uint64_t> vaddrs;
    for (size_t page = 0; page + 1 < table.page_index.size(); ++page)
        for (uint32_t row = table.page_index[page]; row < table.page_index[page + 1]; ++row)
            vaddrs.push_back(table.first_page_vaddr + (page << MT_UNWIND_PAGE_SHIFT) + (table.rows[row] & 0xfff));
    return vaddrs;
}

/// Addresses next to rows where the look-up is not that of the last row at or before them. `vaddrs` ascends, so the
/// position moves on only.
uint64_t wrong_lookups(const UnwindTable& table, const std::vector<uint64_t>& vaddrs) {
    uint64_t wrong = 0;
    size_t row = 0;
    for (size_t index = 0; index < vaddrs.size(); ++index) {
        for (const uint64_t vaddr : {vaddrs[index] - 1, vaddrs[index], vaddrs[index] + 1}) {
            if (vaddr < vaddrs.front()) continue;
            row = index == 0 ? 0 : index - 1;
            while (row + 1 < vaddrs.size() && vaddrs[row + 1] <= vaddr)
                ++row;
            wrong += table.rule_at(vaddr) != table.rows[row] >> 16;
        }
    }
    return wrong;
}

void check_lookups(const UnwindTable& table) {
    const std::vector<uint64_t> vaddrs = row_vaddrs(table);
    REQUIRE(vaddrs.size() == table.rows.size());
    CHECK(std::ranges::adjacent_find(vaddrs, std::ranges::greater_equal{}) == vaddrs.end());
    CHECK(vaddrs.front() == table.first_page_vaddr);
    CHECK(wrong_lookups(table, vaddrs) == 0);
    CHECK(table.rule_at(table.first_page_vaddr - 1) == MT_UNWIND_GAP);
    CHECK(table.rule_at(table.first_page_vaddr + ((table.page_index.size() - 1) << MT_UNWIND_PAGE_SHIFT)) ==
          MT_UNWIND_GAP);
    CHECK(table.rule_at(~uint64_t{0}) == MT_UNWIND_GAP);
}

/// Code of the executable segment that holds `vaddr`, from there to its end.
std::span<const uint8_t> code_at(Elf* elf, uint64_t vaddr) {
    size_t count = 0;
    elf_getphdrnum(elf, &count);
    for (size_t index = 0; index < count; ++index) {
        GElf_Phdr header;
        gelf_getphdr(elf, static_cast<int>(index), &header);
        if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0) continue;
        if (vaddr < header.p_vaddr || vaddr - header.p_vaddr >= header.p_filesz) continue;
        const auto offset = static_cast<int64_t>(header.p_offset + (vaddr - header.p_vaddr));
        const uint64_t size_bytes = header.p_filesz - (vaddr - header.p_vaddr);
        const Elf_Data* data = elf_getdata_rawchunk(elf, offset, size_bytes, ELF_T_BYTE);
        return {static_cast<const uint8_t*>(data->d_buf), data->d_size};
    }
    return {};
}

/// Return addresses of the calls of all functions, by decoding each from its start.
std::vector<uint64_t> return_addresses(Elf* elf) {
    std::vector<uint64_t> found;
    ZydisDecoder decoder;
    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    const std::vector<uint64_t> starts = function_starts(elf);
    const std::span<const uint8_t> code = code_at(elf, starts.front());
    for (size_t index = 0; index < starts.size(); ++index) {
        const uint64_t limit = index + 1 < starts.size() ? starts[index + 1] : starts.front() + code.size();
        ZydisDecodedInstruction instruction;
        for (uint64_t vaddr = starts[index]; vaddr < limit; vaddr += instruction.length) {
            const std::span<const uint8_t> rest = code.subspan(vaddr - starts.front());
            if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder, nullptr, rest.data(), rest.size(), &instruction)))
                break;
            if (instruction.mnemonic == ZYDIS_MNEMONIC_CALL) found.push_back(vaddr + instruction.length);
        }
    }
    return found;
}

void check_call_sites(const std::string& path, uint64_t least_calls) {
    constexpr uint64_t max_bytes_per_mib = 15 << 10;
    const InstalledFile file(path);
    if (!file.elf) {
        WARN("not installed, so not checked: " << path);
        return;
    }
    const Result<UnwindTable> all = build_unwind_table(file.fd.get(), -1, UnwindRows::all);
    const Result<UnwindTable> calls = build_unwind_table(file.fd.get(), -1, UnwindRows::call_sites);
    REQUIRE(all);
    REQUIRE(calls);
    const std::vector<uint64_t> addresses = return_addresses(file.elf.get());
    uint64_t different = 0;
    for (const uint64_t address : addresses)
        different += !(expanded_at(*calls, address - 1) == expanded_at(*all, address - 1));
    CHECK(different == 0);
    CHECK(addresses.size() >= least_calls);
    CHECK(calls->size_bytes() * (1 << 20) <= max_bytes_per_mib * calls->text_bytes);
    check_lookups(*all);
    check_lookups(*calls);
}

}  // namespace

TEST_CASE("look-ups and call-site rows of the C library are right at every row and call", "[unwind]") {
    check_call_sites("/usr/lib/x86_64-linux-gnu/libc.so.6", 10'000);
}

TEST_CASE("look-ups and call-site rows of the C++ library are right at every row and call", "[unwind]") {
    check_call_sites("/usr/lib/x86_64-linux-gnu/libstdc++.so.6", 10'000);
}

TEST_CASE("look-ups and call-site rows of libcrypto are right at every row and call", "[unwind]") {
    check_call_sites("/usr/lib/x86_64-linux-gnu/libcrypto.so.3", 20'000);
}

TEST_CASE("look-ups and call-site rows of python are right at every row and call", "[unwind]") {
    check_call_sites("/usr/bin/python3.11", 20'000);
}

TEST_CASE("look-ups and call-site rows of LLVM are right at every row and call", "[unwind][slow]") {
    check_call_sites("/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1", 500'000);
}

TEST_CASE("look-ups and call-site rows of node are right at every row and call", "[unwind][slow]") {
    check_call_sites("/usr/bin/node", 100'000);
}

TEST_CASE("a page without rows takes the row before it", "[unwind]") {
    constexpr uint64_t code = TestElf::code_vaddr;
    const TestElf elf = {
        .eh_frame = eh_frame(TestElf::eh_frame_vaddr,
                             {{code + 0x800, 0x2000, {}}, {code + 0x2800, 0x10, {DW_CFA_def_cfa_offset, 16}}})};
    const Result<UnwindTable> table = build_unwind_table(elf.bytes(), UnwindRows::all);
    REQUIRE(table);
    CHECK(table->page_index == std::vector<uint32_t>{0, 2, 2, 4});
    check_lookups(*table);
    CHECK(expanded_at(*table, code + 0x1000) == plain(MT_CFA_RSP, 8));
    CHECK(expanded_at(*table, code + 0x1fff) == plain(MT_CFA_RSP, 8));
    CHECK(expanded_at(*table, code + 0x27ff) == plain(MT_CFA_RSP, 8));
    CHECK(expanded_at(*table, code + 0x2800) == plain(MT_CFA_RSP, 16));
    CHECK(expanded_at(*table, code + 0x2fff) == special(MT_UNWIND_GAP));
}

TEST_CASE("each form of a call keeps its row, and what cannot be a call does not", "[unwind]") {
    const auto is_kept = [](const Bytes& instruction) {
        constexpr uint64_t vaddr = TestElf::code_vaddr;
        TestElf elf = {
            .eh_frame = eh_frame(TestElf::eh_frame_vaddr, {{vaddr,
                                                            0x200,
                                                            {DW_CFA_advance_loc1, 0x80, DW_CFA_def_cfa_offset, 16,
                                                             DW_CFA_advance_loc1, 0x80, DW_CFA_def_cfa_offset, 8}}})};
        std::ranges::copy(instruction, elf.code.begin() + 0xc0);
        const Result<UnwindTable> table = build_unwind_table(elf.bytes(), UnwindRows::call_sites);
        return table && expanded_at(*table, vaddr + 0xc0) == plain(MT_CFA_RSP, 16);
    };
    CHECK(is_kept({0xe8, 0, 0, 0, 0}));
    CHECK(is_kept({0xff, 0xd0}));                          // call rax
    CHECK(is_kept({0x41, 0xff, 0xd4}));                    // call r12
    CHECK(is_kept({0xff, 0x15, 0xff, 0xff, 0xff, 0x7f}));  // call [rip + ...]
    CHECK(is_kept({0xff, 0x54, 0x24, 0x10}));              // call [rsp + 16]
    CHECK(is_kept({0xff, 0x14, 0x25, 0, 0, 0, 0}));        // call [address]
    CHECK(is_kept({0xff, 0x94, 0xc8, 0, 0, 0, 0}));        // call [rax + 8 * rcx + ...]
    CHECK_FALSE(is_kept({0x90}));
    CHECK_FALSE(is_kept({0xff, 0xe0}));                    // jmp rax
    CHECK_FALSE(is_kept({0xff, 0x30}));                    // push [rax]
    CHECK_FALSE(is_kept({0xe8, 0xff, 0xff, 0xff, 0x7f}));  // leads out of the file
}

TEST_CASE("a call is of the row that holds its last byte", "[unwind]") {
    // The second of three rows, [0x80, 0x100), with one call in the code.
    const auto is_kept = [](uint64_t offset, const Bytes& instruction) {
        constexpr uint64_t vaddr = TestElf::code_vaddr;
        TestElf elf = {.eh_frame = eh_frame(TestElf::eh_frame_vaddr, {{vaddr, 0x80, {}},
                                                                      {vaddr + 0x80, 0x80, {DW_CFA_def_cfa_offset, 16}},
                                                                      {vaddr + 0x100, 0x80, {}}})};
        std::ranges::copy(instruction, elf.code.begin() + static_cast<std::ptrdiff_t>(offset));
        const Result<UnwindTable> table = build_unwind_table(elf.bytes(), UnwindRows::call_sites);
        return table && expanded_at(*table, vaddr + 0xff) == plain(MT_CFA_RSP, 16);
    };
    const std::vector<Bytes> calls = {
        {0xe8, 0, 0, 0, 0},              // call
        {0xff, 0xd0},                    // call rax
        {0xff, 0x50, 0x10},              // call [rax + 16]
        {0xff, 0x15, 0, 0, 0, 0},        // call [rip]
        {0xff, 0x90, 0, 0, 0, 0},        // call [rax + 32 bits]
        {0xff, 0x14, 0xc8},              // call [rax + 8 * rcx]
        {0xff, 0x54, 0xc8, 0x10},        // call [rax + 8 * rcx + 16]
        {0xff, 0x94, 0xc8, 0, 0, 0, 0},  // call [rax + 8 * rcx + 32 bits]
        {0xff, 0x14, 0x25, 0, 0, 0, 0},  // call [32 bits]
    };
    for (const Bytes& call : calls) {
        INFO("call of " << call.size() << " bytes, " << int{call[1]});
        CHECK(is_kept(0x100 - call.size(), call));
        CHECK(is_kept(0x81 - call.size(), call));
        CHECK_FALSE(is_kept(0x101 - call.size(), call));
        CHECK_FALSE(is_kept(0x80 - call.size(), call));
    }
}

TEST_CASE("calls are found wherever they lie in a long function", "[unwind]") {
    // Longer than any buffer that the code could be read through; a call at each place around multiples of 64 KiB.
    constexpr uint64_t vaddr = TestElf::code_vaddr;
    constexpr size_t code_bytes = 1 << 20;
    size_t missed = 0;
    for (size_t around = 1 << 16; around < code_bytes; around += 1 << 16) {
        for (size_t offset = around - 8; offset < around + 8; ++offset) {
            TestElf elf = {
                .code = Bytes(code_bytes + 0x1000, 0x90),
                .eh_frame = eh_frame(TestElf::eh_frame_vaddr,
                                     {{vaddr, 0x10, {}}, {vaddr + 0x10, code_bytes, {DW_CFA_def_cfa_offset, 16}}})};
            std::ranges::copy(Bytes{0xff, 0x94, 0xc8, 1, 0, 0, 0},
                              elf.code.begin() + static_cast<std::ptrdiff_t>(offset));
            const Result<UnwindTable> table = build_unwind_table(elf.bytes(), UnwindRows::call_sites);
            REQUIRE(table);
            missed += !(expanded_at(*table, vaddr + offset) == plain(MT_CFA_RSP, 16));
        }
    }
    CHECK(missed == 0);
}
