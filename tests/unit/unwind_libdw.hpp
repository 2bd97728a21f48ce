// The oracle of unwind tables: what libdw's own interpreter of call-frame information says about a file, row by row.
#pragma once

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <gelf.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "unit/unwind_expanded_rule.hpp"

namespace memtrace::unwind_test {

/// A library or program of this machine, opened for libdw; `elf` is null when it is not installed.
struct InstalledFile {
    explicit InstalledFile(const std::string& path) : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
        elf_version(EV_CURRENT);
        if (fd) elf.reset(elf_begin(fd.get(), ELF_C_READ_MMAP, nullptr));
    }
    struct Closer {
        void operator()(Elf* closed) const { elf_end(closed); }
        void operator()(Dwarf_CFI* closed) const { dwarf_cfi_end(closed); }
    };
    Fd fd;
    std::unique_ptr<Elf, Closer> elf;
};

/// Starts of the functions in the binary search table of .eh_frame_hdr, as GNU ld and lld write it.
inline std::vector<uint64_t> function_starts(Elf* elf) {
    std::vector<uint64_t> starts;
    size_t count = 0;
    elf_getphdrnum(elf, &count);
    for (size_t index = 0; index < count; ++index) {
        GElf_Phdr header;
        if (gelf_getphdr(elf, static_cast<int>(index), &header) == nullptr || header.p_type != PT_GNU_EH_FRAME)
            continue;
        const Elf_Data* data =
            elf_getdata_rawchunk(elf, static_cast<int64_t>(header.p_offset), header.p_filesz, ELF_T_BYTE);
        if (data == nullptr || data->d_size < 12) return starts;
        const auto* bytes = static_cast<const uint8_t*>(data->d_buf);
        uint32_t entries = 0;
        std::memcpy(&entries, bytes + 8, sizeof entries);
        for (size_t entry = 0; entry < entries && 20 + 8 * entry <= data->d_size; ++entry) {
            int32_t distance = 0;
            std::memcpy(&distance, bytes + 12 + 8 * entry, sizeof distance);
            starts.push_back(header.p_vaddr + static_cast<uint64_t>(int64_t{distance}));
        }
    }
    return starts;
}

using Operations = std::span<const Dwarf_Op>;

inline mt_s32 operand(const Dwarf_Op& operation) {
    return static_cast<mt_s32>(static_cast<int64_t>(operation.number));
}

inline bool is_plt(Operations cfa, uint8_t threshold) {
    const std::vector<uint8_t> atoms = {
        DW_OP_breg7, DW_OP_breg16, DW_OP_lit15, DW_OP_and, static_cast<uint8_t>(DW_OP_lit0 + threshold),
        DW_OP_ge,    DW_OP_lit3,   DW_OP_shl,   DW_OP_plus};
    return std::ranges::equal(cfa, atoms, {}, &Dwarf_Op::atom);
}

inline bool is_signal_frame(Operations cfa) {
    return cfa.size() == 2 && cfa[0].atom == DW_OP_breg7 && operand(cfa[0]) == 160 && cfa[1].atom == DW_OP_deref;
}

/// Sets the CFA's fields; false for one that the format cannot say.
inline bool set_cfa(Operations cfa, mt_unwind_rule& rule) {
    const Dwarf_Op& first = cfa[0];
    if (cfa.size() == 1 && first.atom == DW_OP_bregx && (first.number == 6 || first.number == 7)) {
        rule.cfa_kind = first.number == 6 ? MT_CFA_RBP : MT_CFA_RSP;
        rule.cfa_offset = static_cast<mt_s32>(static_cast<int64_t>(first.number2));
        return true;
    }
    if (first.atom != DW_OP_breg6 && first.atom != DW_OP_breg7) return false;
    const bool is_rbp = first.atom == DW_OP_breg6;
    rule.cfa_offset = operand(first);
    rule.cfa_kind = is_rbp ? MT_CFA_RBP : MT_CFA_RSP;
    if (cfa.size() == 1) return true;
    rule.cfa_kind = is_rbp ? MT_CFA_AT_RBP : MT_CFA_AT_RSP;
    if (cfa[1].atom != DW_OP_deref || cfa.size() > 3) return false;
    if (cfa.size() == 3) rule.cfa_addend = operand(cfa[2]);
    return cfa.size() == 2 || cfa[2].atom == DW_OP_plus_uconst;
}

inline void set_rbp(Operations rbp, bool is_undefined, mt_unwind_rule& rule) {
    rule.rbp_kind = MT_RBP_UNKNOWN;
    if (is_undefined) return;
    if (rbp.empty()) {
        rule.rbp_kind = MT_RBP_SAME;
        return;
    }
    if (rbp[0].atom != DW_OP_call_frame_cfa || rbp.size() > 2) return;
    rule.rbp_kind = MT_RBP_AT_CFA;
    if (rbp.size() == 1 || rbp[1].atom == DW_OP_plus_uconst) {
        rule.rbp_offset = rbp.size() == 1 ? 0 : operand(rbp[1]);
        return;
    }
    // The one way in which libdw's rows need reading (some 40 rows of node): for DW_CFA_expression it shows the CFA,
    // which DWARF puts on the stack first, as an operation of its own. Beneath `rbp + offset` it changes nothing.
    rule.rbp_kind = rbp[1].atom == DW_OP_breg6 ? MT_RBP_AT_RBP : MT_RBP_UNKNOWN;
    rule.rbp_offset = rbp[1].atom == DW_OP_breg6 ? operand(rbp[1]) : 0;
}

/// The rule that a table should have for `frame`.
inline ExpandedRule expected_rule(Dwarf_Frame* frame, bool is_signal) {
    constexpr int rbp_number = 6;
    constexpr int rip_number = 16;
    Dwarf_Op memory[3];
    Dwarf_Op* operations = nullptr;
    size_t count = 0;
    if (dwarf_frame_cfa(frame, &operations, &count) != 0 || count == 0) return special(MT_UNWIND_UNSUPPORTED);
    const std::vector<Dwarf_Op> cfa(operations, operations + count);
    if (is_signal && is_signal_frame(cfa)) return special(MT_UNWIND_SIGNAL);
    if (dwarf_frame_register(frame, rip_number, memory, &operations, &count) != 0)
        return special(MT_UNWIND_UNSUPPORTED);
    // libdw's way to say "undefined", and "same value" with a null pointer.
    if (count == 0 && operations == memory) return special(MT_UNWIND_STOP);
    const bool is_below_cfa = count == 2 && operations[0].atom == DW_OP_call_frame_cfa &&
                              operations[1].atom == DW_OP_plus_uconst && operand(operations[1]) == -8;
    if (!is_below_cfa) return special(MT_UNWIND_UNSUPPORTED);
    if (is_plt(cfa, 11)) return special(MT_UNWIND_PLT11);
    if (is_plt(cfa, 10)) return special(MT_UNWIND_PLT10);
    ExpandedRule expected;
    if (!set_cfa(cfa, expected.rule)) return special(MT_UNWIND_UNSUPPORTED);
    if (dwarf_frame_register(frame, rbp_number, memory, &operations, &count) != 0)
        return special(MT_UNWIND_UNSUPPORTED);
    set_rbp(Operations(operations, count), count == 0 && operations == memory, expected.rule);
    return expected;
}

/// Calls `row(start, end, rule)` for each row of each function that .eh_frame_hdr lists, and
/// `gap(start, end)` for what lies between functions.
template <typename Row, typename Gap>
void for_each_libdw_row(Elf* elf, Row row, Gap gap) {
    const std::unique_ptr<Dwarf_CFI, InstalledFile::Closer> cfi(dwarf_getcfi_elf(elf));
    const std::vector<uint64_t> starts = function_starts(elf);
    for (size_t index = 0; index < starts.size(); ++index) {
        const uint64_t limit = index + 1 < starts.size() ? starts[index + 1] : ~uint64_t{0};
        uint64_t vaddr = starts[index];
        while (vaddr < limit) {
            Dwarf_Frame* frame = nullptr;
            if (dwarf_cfi_addrframe(cfi.get(), vaddr, &frame) != 0) break;
            const std::unique_ptr<Dwarf_Frame, decltype(&std::free)> owned(frame, &std::free);
            Dwarf_Addr start = 0;
            Dwarf_Addr end = 0;
            bool is_signal = false;
            dwarf_frame_info(frame, &start, &end, &is_signal);
            row(vaddr, end, expected_rule(frame, is_signal));
            if (end <= vaddr) break;
            vaddr = end;
        }
        if (vaddr < limit) gap(vaddr, limit);
    }
}

}  // namespace memtrace::unwind_test
