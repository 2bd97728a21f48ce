// What call-frame instructions become in a table, on files of a few functions.
#include <sys/auxv.h>

#include "catch.hpp"
#include "unit/unwind_expanded_rule.hpp"
#include "unit/unwind_test_elf.hpp"

using namespace memtrace;
using namespace memtrace::unwind_test;

namespace {

constexpr uint64_t code = TestElf::code_vaddr;

UnwindTable table_of_file(const TestElf& elf) {
    Result<UnwindTable> table = build_unwind_table(elf.bytes(), UnwindRows::all);
    REQUIRE(table);
    return std::move(table).value();
}

UnwindTable table_of(const std::vector<TestFunction>& functions, const std::string& augmentation = "zR") {
    return table_of_file(TestElf{.eh_frame = eh_frame(TestElf::eh_frame_vaddr, functions, augmentation)});
}

/// The rule of a function with these instructions.
ExpandedRule rule_of(const Bytes& instructions, const std::string& augmentation = "zR") {
    return expanded_at(table_of({{code, 16, instructions}}, augmentation), code);
}

Bytes cfa_expression(const Bytes& expression) {
    Bytes instructions = {DW_CFA_def_cfa_expression, static_cast<uint8_t>(expression.size())};
    append(instructions, expression);
    return instructions;
}

}  // namespace

TEST_CASE("the rows of a function with a frame pointer are its prologue, body and epilogue", "[unwind]") {
    const UnwindTable table =
        table_of({{code + 0x100,
                   0x40,
                   {DW_CFA_advance_loc | 1, DW_CFA_def_cfa_offset, 16, DW_CFA_offset | 6, 2, DW_CFA_advance_loc | 3,
                    DW_CFA_def_cfa_register, 6, DW_CFA_advance_loc1, 0x3b, DW_CFA_def_cfa, 7, 8, DW_CFA_restore | 6}}});
    CHECK(table.counts.functions == 1);
    CHECK(table.counts.rows == 4);
    CHECK(expanded_at(table, code + 0xff) == special(MT_UNWIND_GAP));
    CHECK(expanded_at(table, code + 0x100) == plain(MT_CFA_RSP, 8));
    CHECK(expanded_at(table, code + 0x101) == plain(MT_CFA_RSP, 16, MT_RBP_AT_CFA, -16));
    CHECK(expanded_at(table, code + 0x104) == plain(MT_CFA_RBP, 16, MT_RBP_AT_CFA, -16));
    CHECK(expanded_at(table, code + 0x13e) == plain(MT_CFA_RBP, 16, MT_RBP_AT_CFA, -16));
    CHECK(expanded_at(table, code + 0x13f) == plain(MT_CFA_RSP, 8));
    CHECK(expanded_at(table, code + 0x140) == special(MT_UNWIND_GAP));
    CHECK(table.rules.empty());
}

TEST_CASE("rules that 15 bits cannot say go to the dictionary", "[unwind]") {
    // 8 KiB and more: 0x80 0x40 is 8192 as ULEB128
    CHECK(rule_of({DW_CFA_def_cfa_offset, 0x80, 0x40}) == plain(MT_CFA_RSP, 8192));
    CHECK(rule_of({DW_CFA_def_cfa_offset, 0xf8, 0x3f}) == plain(MT_CFA_RSP, 8184));
    CHECK(rule_of({DW_CFA_def_cfa_offset, 20}) == plain(MT_CFA_RSP, 20));
    CHECK(rule_of({DW_CFA_def_cfa_offset_sf, 1}) == plain(MT_CFA_RSP, -8));
    CHECK(rule_of({DW_CFA_offset | 6, 16}) == plain(MT_CFA_RSP, 8, MT_RBP_AT_CFA, -128));
    CHECK(rule_of({DW_CFA_offset | 6, 17}) == plain(MT_CFA_RSP, 8, MT_RBP_AT_CFA, -136));
    CHECK(rule_of({DW_CFA_offset | 6, 1}) == plain(MT_CFA_RSP, 8, MT_RBP_AT_CFA, -8));
    CHECK(rule_of({DW_CFA_undefined, 6}) == plain(MT_CFA_RSP, 8, MT_RBP_UNKNOWN));
    CHECK(rule_of({DW_CFA_register, 6, 3}) == plain(MT_CFA_RSP, 8, MT_RBP_UNKNOWN));
    CHECK(rule_of({DW_CFA_expression, 6, 2, DW_OP_breg6, 0x70}) == plain(MT_CFA_RSP, 8, MT_RBP_AT_RBP, -16));
    const ExpandedRule deref = {0, {MT_CFA_AT_RBP, MT_RBP_SAME, 0, -8, 0, 0}};
    CHECK(rule_of(cfa_expression({DW_OP_breg6, 0x78, DW_OP_deref})) == deref);
    const ExpandedRule addend = {0, {MT_CFA_AT_RSP, MT_RBP_SAME, 0, 8, 16, 0}};
    CHECK(rule_of(cfa_expression({DW_OP_breg7, 8, DW_OP_deref, DW_OP_plus_uconst, 16})) == addend);
}

TEST_CASE("equal rules share an entry of the dictionary", "[unwind]") {
    const Bytes large_frame = {DW_CFA_def_cfa_offset, 0x80, 0x40};
    const Bytes larger_frame = {DW_CFA_def_cfa_offset, 0x80, 0x41};
    const UnwindTable table =
        table_of({{code, 16, large_frame}, {code + 32, 16, larger_frame}, {code + 64, 16, large_frame}});
    CHECK(table.rules.size() == 2);
    CHECK(table.rule_at(code) == table.rule_at(code + 64));
    CHECK(table.rule_at(code) != table.rule_at(code + 32));
}

TEST_CASE("a full dictionary makes rows unsupported and counts them", "[unwind]") {
    std::vector<TestFunction> functions;
    for (uint64_t index = 0; index < MT_UNWIND_MAX_RULES + 10; ++index) {
        Bytes offset = {DW_CFA_def_cfa_offset};
        append(offset, {static_cast<uint8_t>(0x81 | index << 1), static_cast<uint8_t>(0x80 | index >> 6), 1});
        functions.push_back({code + 2 * index, 2, offset});
    }
    const UnwindTable table = table_of(functions);
    CHECK(table.rules.size() == MT_UNWIND_MAX_RULES);
    CHECK(table.counts.rules_full == 10);
    CHECK(table.counts.rows_unsupported == 10);
    CHECK(expanded_at(table, functions.back().vaddr) == special(MT_UNWIND_UNSUPPORTED));
}

TEST_CASE("frames that are not calls have special rules", "[unwind]") {
    const Bytes signal_cfa = cfa_expression({DW_OP_breg7, 0xa0, 1, DW_OP_deref});
    CHECK(rule_of(signal_cfa, "zRS") == special(MT_UNWIND_SIGNAL));
    CHECK(rule_of(signal_cfa).rule.cfa_kind == MT_CFA_AT_RSP);
    CHECK(rule_of({}, "zRS") == plain(MT_CFA_RSP, 8));
    CHECK(rule_of({DW_CFA_undefined, 16}) == special(MT_UNWIND_STOP));
    Bytes plt = {DW_OP_breg7, 8,        DW_OP_breg16, 0,         DW_OP_lit15, DW_OP_and,
                 DW_OP_lit11, DW_OP_ge, DW_OP_lit3,   DW_OP_shl, DW_OP_plus};
    CHECK(rule_of(cfa_expression(plt)) == special(MT_UNWIND_PLT11));
    plt[6] = DW_OP_lit10;
    CHECK(rule_of(cfa_expression(plt)) == special(MT_UNWIND_PLT10));
    plt[6] = DW_OP_lit9;
    CHECK(rule_of(cfa_expression(plt)) == special(MT_UNWIND_UNSUPPORTED));
}

TEST_CASE("what the format cannot say is unsupported and counted", "[unwind]") {
    const UnwindTable table =
        table_of({{code, 16, {DW_CFA_def_cfa, 10, 0}}, {code + 64, 16, {DW_CFA_register, 16, 12}}});
    CHECK(table.counts.rows_unsupported == 2);
    CHECK(expanded_at(table, code) == special(MT_UNWIND_UNSUPPORTED));
    CHECK(expanded_at(table, code + 64) == special(MT_UNWIND_UNSUPPORTED));
}

TEST_CASE("alignment between functions is absorbed, a longer gap is none of theirs", "[unwind]") {
    const UnwindTable table = table_of({{code, 17, {}}, {code + 32, 16, {}}, {code + 64, 16, {}}});
    CHECK(expanded_at(table, code + 17) == plain(MT_CFA_RSP, 8));
    CHECK(expanded_at(table, code + 47) == plain(MT_CFA_RSP, 8));
    CHECK(expanded_at(table, code + 48) == special(MT_UNWIND_GAP));
    CHECK(expanded_at(table, code + 63) == special(MT_UNWIND_GAP));
    CHECK(expanded_at(table, code + 64) == plain(MT_CFA_RSP, 8));
    CHECK(table.rows.size() == 4);
}

TEST_CASE("where functions overlap, the lower one holds and the rest goes on from its end", "[unwind]") {
    const UnwindTable table = table_of(
        {{code + 16, 48, {DW_CFA_def_cfa_offset, 24}}, {code, 32, {}}, {code + 4, 4, {DW_CFA_def_cfa_offset, 32}}});
    CHECK(expanded_at(table, code + 5) == plain(MT_CFA_RSP, 8));
    CHECK(expanded_at(table, code + 31) == plain(MT_CFA_RSP, 8));
    CHECK(expanded_at(table, code + 32) == plain(MT_CFA_RSP, 24));
    CHECK(expanded_at(table, code + 63) == plain(MT_CFA_RSP, 24));
}

TEST_CASE("debug frames fill only what eh_frame and earlier files leave", "[unwind]") {
    const Bytes sixteen = {DW_CFA_def_cfa_offset, 16};
    const Bytes thirty_two = {DW_CFA_def_cfa_offset, 32};
    const TestElf elf = {.eh_frame = eh_frame(TestElf::eh_frame_vaddr, {{code + 64, 32, {}}, {code + 128, 32, {}}}),
                         .debug_frame = debug_frame({{code, 256, sixteen}})};
    const TestElf debug = {.debug_frame = debug_frame({{code + 0x80, 0x1000, thirty_two}})};
    const Fd file = file_of(elf.bytes());
    const Fd debug_file = file_of(debug.bytes());
    const Result<UnwindTable> table = build_unwind_table(file.get(), debug_file.get(), UnwindRows::all);
    REQUIRE(table);
    CHECK(expanded_at(*table, code) == plain(MT_CFA_RSP, 16));
    CHECK(expanded_at(*table, code + 64) == plain(MT_CFA_RSP, 8));
    CHECK(expanded_at(*table, code + 96) == plain(MT_CFA_RSP, 16));
    CHECK(expanded_at(*table, code + 128) == plain(MT_CFA_RSP, 8));
    CHECK(expanded_at(*table, code + 255) == plain(MT_CFA_RSP, 16));
    CHECK(expanded_at(*table, code + 256) == plain(MT_CFA_RSP, 32));
    CHECK(expanded_at(*table, code + 0x107f) == plain(MT_CFA_RSP, 32));
    CHECK(expanded_at(*table, code + 0x1080) == special(MT_UNWIND_GAP));
}

TEST_CASE("the debug frames of a Go program are not used", "[unwind]") {
    const Bytes frames = debug_frame({{code, 256, {}}});
    CHECK(table_of_file(TestElf{.debug_frame = frames}).counts.functions == 1);
    CHECK(table_of_file(TestElf{.debug_frame = frames, .is_go = true}).rows.empty());
}

TEST_CASE("frames are found without section headers", "[unwind]") {
    const TestElf elf = {.eh_frame = eh_frame(TestElf::eh_frame_vaddr, {{code, 16, {}}}), .has_section_headers = false};
    CHECK(expanded_at(table_of_file(elf), code) == plain(MT_CFA_RSP, 8));
}

TEST_CASE("a file without call-frame information has an empty table, all gap", "[unwind]") {
    const UnwindTable table = table_of_file(TestElf{});
    CHECK(table.rows.empty());
    CHECK(table.page_index.empty());
    CHECK(table.rule_at(code) == MT_UNWIND_GAP);
    CHECK(table.text_bytes == 0x3000);
}

TEST_CASE("functions that the linker dropped are counted and left out", "[unwind]") {
    const UnwindTable table = table_of({{0x1000, 16, {}}, {code, 16, {}}});
    CHECK(table.counts.functions == 1);
    CHECK(table.counts.functions_outside == 1);
}

TEST_CASE("the vDSO of this process has a table", "[unwind]") {
    const auto* image = reinterpret_cast<const uint8_t*>(::getauxval(AT_SYSINFO_EHDR));
    REQUIRE(image != nullptr);
    const Result<UnwindTable> table = build_unwind_table(std::span(image, 8192), UnwindRows::all);
    REQUIRE(table);
    CHECK(table->counts.functions >= 4);
    CHECK(table->counts.functions_malformed == 0);
    CHECK(table->counts.rows_unsupported == 0);
}
