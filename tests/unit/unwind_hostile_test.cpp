// Files that lie: whatever is wrong with an ELF file or its call-frame information, a table is built or an Error given,
// and every address has a rule.
#include <random>

#include "catch.hpp"
#include "unit/unwind_expanded_rule.hpp"
#include "unit/unwind_test_elf.hpp"

using namespace memtrace;
using namespace memtrace::unwind_test;

namespace {

constexpr uint64_t code = TestElf::code_vaddr;

Bytes small_elf(bool has_section_headers) {
    const std::vector<TestFunction> functions = {
        {code,
         0x20,
         {DW_CFA_advance_loc | 1, DW_CFA_def_cfa_offset, 16, DW_CFA_offset | 6, 2, DW_CFA_remember_state,
          DW_CFA_advance_loc2, 9, 0, DW_CFA_restore_state}},
        {code + 0x40, 0x20, {DW_CFA_def_cfa_expression, 3, DW_OP_breg6, 0x78, DW_OP_deref}},
        {code + 0x60, 0x20, {DW_CFA_expression, 6, 2, DW_OP_breg6, 0, DW_CFA_undefined, 16}},
    };
    return TestElf{.code = Bytes(0x200, 0xe8),
                   .eh_frame = eh_frame(TestElf::eh_frame_vaddr, functions),
                   .debug_frame = debug_frame({{code + 0x80, 0x20, {DW_CFA_def_cfa_offset, 24}}}),
                   .has_section_headers = has_section_headers}
        .bytes();
}

/// Whether all that a table's readers rely on holds: any address may be asked for.
bool is_sound(const UnwindTable& table) {
    if (table.rows.empty()) return table.page_index.empty();
    if (table.page_index.size() < 2 || table.page_index.front() != 0 || table.page_index.back() != table.rows.size())
        return false;
    if (!std::ranges::is_sorted(table.page_index)) return false;
    for (const uint32_t row : table.rows) {
        const uint32_t rule = row >> 16;
        const bool is_entry = (rule & MT_UNWIND_DICTIONARY_BITS) == MT_UNWIND_DICTIONARY;
        if (is_entry && (rule & MT_UNWIND_INDEX_MASK) >= table.rules.size()) return false;
        if (!is_entry && rule > MT_UNWIND_UNSUPPORTED) return false;
    }
    return (table.first_page_vaddr & 0xfff) == 0 && (table.rows[0] & 0xffff) == (table.first_page_vaddr & 0xffff);
}

/// Builds both kinds of table in every way; false if one is not sound.
bool survives(const Bytes& bytes) {
    for (const UnwindRows rows : {UnwindRows::all, UnwindRows::call_sites}) {
        const Result<UnwindTable> table = build_unwind_table(bytes, rows);
        if (table && !is_sound(*table)) return false;
    }
    const Fd file = file_of(bytes);
    const Result<UnwindTable> table = build_unwind_table(file.get(), file.get(), UnwindRows::call_sites);
    return !table || is_sound(*table);
}

/// The table of one function with these instructions.
UnwindTable table_of(const Bytes& instructions, const Bytes& initial = usual_initial_instructions()) {
    const TestElf elf = {.eh_frame = eh_frame(TestElf::eh_frame_vaddr, {{code, 0x100, instructions}}, "zR", initial)};
    Result<UnwindTable> table = build_unwind_table(elf.bytes(), UnwindRows::all);
    REQUIRE(table);
    REQUIRE(is_sound(*table));
    return std::move(table).value();
}

}  // namespace

TEST_CASE("a file cut at any length gives a sound table or an error", "[unwind]") {
    for (const bool has_section_headers : {true, false}) {
        const Bytes whole = small_elf(has_section_headers);
        REQUIRE(build_unwind_table(whole, UnwindRows::all));
        size_t unsound = 0;
        for (size_t size_bytes = 0; size_bytes < whole.size(); ++size_bytes)
            unsound += !survives(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size_bytes)));
        CHECK(unsound == 0);
    }
}

TEST_CASE("a file with any one byte changed gives a sound table or an error", "[unwind]") {
    for (const bool has_section_headers : {true, false}) {
        const Bytes whole = small_elf(has_section_headers);
        size_t unsound = 0;
        for (size_t index = 0; index < whole.size(); ++index) {
            for (const uint8_t change : Bytes{0x01, 0x80, 0xff}) {
                Bytes changed = whole;
                changed[index] ^= change;
                unsound += !survives(changed);
            }
        }
        CHECK(unsound == 0);
    }
}

TEST_CASE("random instructions give a sound table", "[unwind]") {
    std::mt19937 random(20'260'101);
    for (int round = 0; round < 5'000; ++round) {
        Bytes instructions(random() % 60);
        for (uint8_t& byte : instructions)
            byte = static_cast<uint8_t>(random() % 3 == 0 ? random() % 0x18 : random());
        table_of(instructions);
    }
}

TEST_CASE("instructions that cannot be end a function with no CFI, and are counted", "[unwind]") {
    const Bytes bad_ends[] = {
        {0x3f},                                                    // no such instruction
        {DW_CFA_restore_state},                                    // nothing was remembered
        {DW_CFA_def_cfa_expression, 0x7f},                         // longer than the function's entry
        {DW_CFA_set_loc, 0, 0, 0x80, 0xff},                        // backwards
        {DW_CFA_def_cfa_expression, 0, DW_CFA_def_cfa_offset, 8},  // offset of an expression
    };
    for (const Bytes& bad_end : bad_ends) {
        Bytes instructions = {DW_CFA_advance_loc | 16};
        append(instructions, bad_end);
        const UnwindTable table = table_of(instructions);
        CHECK(table.counts.functions_malformed == 1);
        CHECK(expanded_at(table, code + 15) == plain(MT_CFA_RSP, 8));
        CHECK(expanded_at(table, code + 16) == special(MT_UNWIND_GAP));
    }
}

TEST_CASE("a common entry that cannot be makes its functions malformed", "[unwind]") {
    for (const Bytes& initial : {Bytes{0x3f}, Bytes{DW_CFA_advance_loc | 1, DW_CFA_def_cfa, 7, 8}}) {
        const UnwindTable table = table_of({}, initial);
        CHECK(table.counts.functions_malformed == 1);
        CHECK(table.counts.functions == 0);
        CHECK(table.rows.empty());
    }
}

TEST_CASE("a common entry within another entry is not one", "[unwind]") {
    Bytes hidden = {20, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, DW_EH_PE_pcrel | DW_EH_PE_sdata4};
    append(hidden, {DW_CFA_def_cfa, 7, 8, DW_CFA_offset | 16, 1, 0, 0});
    Bytes initial = {DW_CFA_val_expression, 3, static_cast<uint8_t>(hidden.size())};
    append(initial, hidden);
    append(initial, usual_initial_instructions());
    Bytes frames = eh_frame(TestElf::eh_frame_vaddr, {{code, 16, {}}, {code + 32, 16, {}}}, "zR", initial);
    const size_t hidden_offset = 20;
    REQUIRE(std::equal(hidden.begin(), hidden.end(), frames.begin() + hidden_offset));
    uint32_t first_size = 0;
    std::memcpy(&first_size, frames.data(), sizeof first_size);
    const size_t pointer_offset = first_size + 8;
    const auto distance = static_cast<uint32_t>(pointer_offset - hidden_offset);
    std::memcpy(frames.data() + pointer_offset, &distance, sizeof distance);
    const Result<UnwindTable> table = build_unwind_table(TestElf{.eh_frame = frames}.bytes(), UnwindRows::all);
    REQUIRE(table);
    CHECK(table->counts.functions_malformed == 1);
    CHECK(table->counts.functions == 1);
}

TEST_CASE("a file that claims more sections than a header can count is an error", "[unwind]") {
    Bytes bytes = small_elf(true);
    const Elf64_Half none = 0;
    std::memcpy(bytes.data() + offsetof(Elf64_Ehdr, e_shnum), &none, sizeof none);
    CHECK(build_unwind_table(bytes, UnwindRows::all).error().why == "it has more sections than a linked file");
}

TEST_CASE("remembered states have a limit", "[unwind]") {
    CHECK(table_of(Bytes(64, DW_CFA_remember_state)).counts.functions_malformed == 0);
    CHECK(table_of(Bytes(65, DW_CFA_remember_state)).counts.functions_malformed == 1);
}

TEST_CASE("an advance past the end of a function ends it", "[unwind]") {
    const UnwindTable table = table_of({DW_CFA_advance_loc4, 0xff, 0xff, 0xff, 0xff, DW_CFA_def_cfa_offset, 64});
    CHECK(table.counts.rows == 1);
    CHECK(expanded_at(table, code + 0xff) == plain(MT_CFA_RSP, 8));
    CHECK(expanded_at(table, code + 0x100) == special(MT_UNWIND_GAP));
}

TEST_CASE("an advance that overflows an address ends the function too", "[unwind]") {
    const Bytes two_to_the_63 = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1};
    const Bytes frames =
        eh_frame(TestElf::eh_frame_vaddr, {{code, 0x100, {DW_CFA_advance_loc | 2, DW_CFA_def_cfa_offset, 64}}}, "zR",
                 usual_initial_instructions(), two_to_the_63);
    const Result<UnwindTable> table = build_unwind_table(TestElf{.eh_frame = frames}.bytes(), UnwindRows::all);
    REQUIRE(table);
    CHECK(table->counts.rows == 1);
    CHECK(expanded_at(*table, code + 0xff) == plain(MT_CFA_RSP, 8));
}

TEST_CASE("executable segments that are too far apart or overlap are errors", "[unwind]") {
    const auto with_second_segment_at = [](uint64_t vaddr) {
        Bytes bytes = small_elf(true);
        const Elf64_Phdr second = segment(PT_LOAD, PF_R | PF_X, 0x40, vaddr, 0x100);
        std::memcpy(bytes.data() + sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr), &second, sizeof second);
        return build_unwind_table(bytes, UnwindRows::all);
    };
    CHECK(with_second_segment_at(code + 0x10000));
    CHECK(with_second_segment_at(code + 0x80).error().why == "its executable segments overlap");
    CHECK(with_second_segment_at(1ull << 46).error().why == "its executable segments are more than 4 GiB apart");
}

TEST_CASE("what is no x86-64 ELF file is an error that says so", "[unwind]") {
    const Bytes text(100, 'x');
    CHECK(build_unwind_table(text, UnwindRows::all).error().why == "not an ELF file");
    CHECK(build_unwind_table(Bytes{}, UnwindRows::all).error().why == "not an ELF file");
    Bytes arm = small_elf(true);
    arm[offsetof(Elf64_Ehdr, e_machine)] = EM_AARCH64;
    CHECK(build_unwind_table(arm, UnwindRows::all).error().why == "ELF for another machine (number 183)");
    CHECK_FALSE(build_unwind_table(-1, -1, UnwindRows::all));
}
