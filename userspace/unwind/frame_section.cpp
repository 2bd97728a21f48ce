#include "unwind/frame_section.hpp"

#include <elf.h>
#include <elfutils/libdw.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "unwind/pointer_encoding.hpp"

namespace memtrace {
namespace {

// All that dwarf_next_cfi wants to know of the file: ElfImage lets no other kind pass.
constexpr std::array<unsigned char, EI_NIDENT> elf_identity = {ELFMAG0,    ELFMAG1,     ELFMAG2,   ELFMAG3,
                                                               ELFCLASS64, ELFDATA2LSB, EV_CURRENT};

// One an object file where the linker does not merge them; more than the largest programs' bounds memory.
constexpr size_t max_common_entries = 1 << 20;

std::span<const uint8_t> between(const uint8_t* start, const uint8_t* end) {
    return end > start ? std::span(start, end) : std::span<const uint8_t>{};
}

/// The augmentation of a CIE (Linux Standard Base, section 10.6.1.1.1); false for one that cannot be understood.
bool read_augmentation(const Dwarf_CIE& cie, CommonFrame& common) {
    const char* letters = cie.augmentation;
    if (*letters == '\0') return true;
    if (*letters++ != 'z') return false;
    common.has_augmentation = true;
    ByteReader data(cie.augmentation_data == nullptr ? std::span<const uint8_t>{}
                                                     : std::span(cie.augmentation_data, cie.augmentation_data_size));
    for (; *letters != '\0'; ++letters) {
        if (*letters == 'R') common.pointer_encoding = data.byte();
        if (*letters == 'L') data.byte();
        if (*letters == 'P') read_encoded_number(data, data.byte());
        if (*letters == 'S') common.is_signal_frame = true;
        // What follows an unknown letter cannot be found, but its size is known, so the instructions can.
        if (std::string_view("RLPSB").find(*letters) == std::string_view::npos) break;
    }
    return !data.has_failed();
}

CommonFrame read_common(const Dwarf_CIE& cie) {
    CommonFrame common;
    if (cie.return_address_register != dwarf_rip || !read_augmentation(cie, common)) return common;
    common.code_alignment = cie.code_alignment_factor;
    common.data_alignment = cie.data_alignment_factor;
    const FrameProgram program{between(cie.initial_instructions, cie.initial_instructions_end), 0, 0, 1};
    CfaInterpreter initial(common, program);
    if (!initial.next() || !initial.is_finished()) return common;
    common.initial = initial.state();
    common.is_valid = true;
    return common;
}

}  // namespace

/// One pass over one section.
class FrameRows::Reader {
  public:
    Reader(FrameRows& rows, const FrameSection& section, FrameSectionKind kind)
        : rows_(rows), section_(section), is_eh_frame_(kind == FrameSectionKind::eh_frame) {
        // libdw does not write to a section that it splits; its interface is older than const.
        data_.d_buf = const_cast<uint8_t*>(section.bytes.data());
        data_.d_size = section.bytes.size();
        data_.d_type = ELF_T_BYTE;
    }

    std::vector<FrameFunction> read() {
        // .eh_frame points backwards to common entries only; the order in .debug_frame is free.
        if (!is_eh_frame_) read_entries(true, false);
        read_entries(is_eh_frame_, true);
        return std::move(functions_);
    }

  private:
    /// A common entry counts only where the section has it as an entry: entries do not overlap, so that no file can
    /// have the same bytes executed again and again.
    void read_entries(bool with_common, bool with_functions) {
        Dwarf_Off next = 0;
        for (Dwarf_Off offset = 0; offset < section_.bytes.size(); offset = next) {
            Dwarf_CFI_Entry entry;
            next = section_.bytes.size();
            const int status = dwarf_next_cfi(elf_identity.data(), &data_, is_eh_frame_, offset, &next, &entry);
            // An entry whose length is not to be trusted ends the section: there is no next one.
            if (status > 0 || next <= offset) break;
            if (status < 0)
                rows_.counts_.functions_malformed += with_functions;
            else if (dwarf_cfi_cie_p(&entry) && with_common && common_.size() < max_common_entries)
                common_.try_emplace(offset, read_common(entry.cie));
            else if (!dwarf_cfi_cie_p(&entry) && with_functions)
                read_function(entry.fde);
        }
    }

    uint64_t vaddr_of(const uint8_t* place) const {
        return section_.vaddr + static_cast<uint64_t>(place - section_.bytes.data());
    }

    std::optional<FrameProgram> read_program(const Dwarf_FDE& fde, const CommonFrame& common) const {
        if (!common.is_valid) return std::nullopt;
        ByteReader reader(between(fde.start, fde.end));
        const uint64_t place = vaddr_of(fde.start);
        const std::optional<uint64_t> start = read_encoded_pointer(reader, common.pointer_encoding, place);
        if (!start) return std::nullopt;
        const std::optional<uint64_t> size_bytes = read_encoded_number(reader, common.pointer_encoding);
        if (!size_bytes || *size_bytes > ~uint64_t{0} - *start) return std::nullopt;
        if (common.has_augmentation) reader.take(reader.uleb());
        if (reader.has_failed()) return std::nullopt;
        return FrameProgram{reader.rest(), vaddr_of(reader.position()), *start, *start + *size_bytes};
    }

    void read_function(const Dwarf_FDE& fde) {
        const auto found = common_.find(fde.CIE_pointer);
        std::optional<FrameProgram> program;
        if (found != common_.end()) program = read_program(fde, found->second);
        if (!program) {
            ++rows_.counts_.functions_malformed;
            return;
        }
        const CodeSegment* segment = rows_.code_.code_segment(program->start_vaddr);
        if (segment == nullptr || program->start_vaddr == program->end_vaddr) {
            ++rows_.counts_.functions_outside;
            return;
        }
        program->end_vaddr = std::min(program->end_vaddr, segment->end_vaddr());
        add_function(found->second, *program);
    }

    /// ElfImage lets no file pass whose code spans more.
    uint32_t offset_of(uint64_t vaddr) const { return static_cast<uint32_t>(vaddr - rows_.base_vaddr_); }

    void add_function(const CommonFrame& shared, const FrameProgram& program) {
        FrameFunction function{offset_of(program.start_vaddr), offset_of(program.end_vaddr),
                               static_cast<uint32_t>(rows_.rows_.size()), 0};
        CfaInterpreter interpreter(shared, program);
        while (interpreter.next()) {
            const mt_u16 rule = rows_.encoder_.encode(interpreter.state(), shared.is_signal_frame);
            count_row(rule);
            add_row(function, interpreter.row_vaddr(), rule);
        }
        if (interpreter.is_malformed()) add_row(function, interpreter.vaddr(), MT_UNWIND_GAP);
        rows_.counts_.functions_malformed += interpreter.is_malformed();
        ++rows_.counts_.functions;
        functions_.push_back(function);
    }

    void count_row(mt_u16 rule) {
        ++rows_.counts_.rows;
        rows_.counts_.rows_unsupported += rule == MT_UNWIND_UNSUPPORTED;
        rows_.counts_.rows_rbp_unknown += loses_rbp(rule, rows_.encoder_.rules());
    }

    void add_row(FrameFunction& function, uint64_t vaddr, mt_u16 rule) {
        std::vector<UnwindRow>& rows = rows_.rows_;
        if (function.row_count > 0 && rows.back().rule == rule) return;
        rows.push_back({offset_of(vaddr), rule});
        ++function.row_count;
    }

    FrameRows& rows_;
    const FrameSection& section_;
    bool is_eh_frame_;
    Elf_Data data_{};
    std::unordered_map<Dwarf_Off, CommonFrame> common_;
    std::vector<FrameFunction> functions_;
};

std::vector<FrameFunction> FrameRows::read(const FrameSection& section, FrameSectionKind kind) {
    // Real sections take 7 to 12 bytes a row.
    constexpr size_t section_bytes_per_row = 8;
    rows_.reserve(rows_.size() + section.bytes.size() / section_bytes_per_row);
    return Reader(*this, section, kind).read();
}

}  // namespace memtrace
