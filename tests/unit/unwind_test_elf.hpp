// Makes small ELF files in memory for the tests of unwind: one code segment and the frame sections of a few functions.
#pragma once

#include <dwarf.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/fd.hpp"

namespace memtrace::unwind_test {

using Bytes = std::vector<uint8_t>;

struct TestFunction {
    uint64_t vaddr = 0;
    uint32_t size_bytes = 0;
    Bytes instructions = {};
};

inline void append(Bytes& bytes, const Bytes& more) {
    bytes.insert(bytes.end(), more.begin(), more.end());
}

template <typename Number>
void append_number(Bytes& bytes, Number number) {
    const size_t offset = bytes.size();
    bytes.resize(offset + sizeof number);
    std::memcpy(bytes.data() + offset, &number, sizeof number);
}

/// One CIE or FDE: its length, `content` and padding.
inline Bytes frame_entry(Bytes content) {
    while (content.size() % 8 != 4)
        content.push_back(DW_CFA_nop);
    Bytes entry;
    append_number(entry, static_cast<uint32_t>(content.size()));
    append(entry, content);
    return entry;
}

/// What compilers put first: at a function's entry the CFA is rsp + 8 and the return address lies below it.
inline Bytes usual_initial_instructions() {
    return {DW_CFA_def_cfa, 7, 8, DW_CFA_offset | 16, 1};
}

/// An .eh_frame that is loaded at `vaddr`, addresses pc-relative as compilers write them.
inline Bytes eh_frame(uint64_t vaddr, const std::vector<TestFunction>& functions,
                      const std::string& augmentation = "zR", const Bytes& initial = usual_initial_instructions(),
                      const Bytes& code_alignment = {1}) {
    Bytes cie = {0, 0, 0, 0, 1};
    cie.insert(cie.end(), augmentation.c_str(), augmentation.c_str() + augmentation.size() + 1);
    append(cie, code_alignment);
    append(cie, {0x78, 16, 1, DW_EH_PE_pcrel | DW_EH_PE_sdata4});
    append(cie, initial);
    Bytes section = frame_entry(cie);
    for (const TestFunction& function : functions) {
        const auto place = static_cast<uint32_t>(section.size() + 4);
        Bytes fde;
        append_number(fde, place);
        append_number(fde, static_cast<uint32_t>(function.vaddr - (vaddr + place + 4)));
        append_number(fde, function.size_bytes);
        fde.push_back(0);
        append(fde, function.instructions);
        append(section, frame_entry(fde));
    }
    append_number(section, uint32_t{0});
    return section;
}

/// A .debug_frame, version 4.
inline Bytes debug_frame(const std::vector<TestFunction>& functions) {
    Bytes cie = {0xff, 0xff, 0xff, 0xff, 4, 0, 8, 0, 1, 0x78, 16};
    append(cie, usual_initial_instructions());
    Bytes section = frame_entry(cie);
    for (const TestFunction& function : functions) {
        Bytes fde;
        append_number(fde, uint32_t{0});
        append_number(fde, function.vaddr);
        append_number(fde, uint64_t{function.size_bytes});
        append(fde, function.instructions);
        append(section, frame_entry(fde));
    }
    return section;
}

struct TestElf {
    static constexpr uint64_t code_vaddr = 0x401000;
    static constexpr uint64_t eh_frame_vaddr = 0x800000;

    Bytes code = Bytes(0x3000, 0x90);
    Bytes eh_frame = {};
    Bytes debug_frame = {};
    bool is_go = false;
    bool has_section_headers = true;

    Bytes bytes() const;
};

inline Elf64_Phdr segment(uint32_t type, uint32_t flags, uint64_t offset, uint64_t vaddr, uint64_t size_bytes) {
    Elf64_Phdr header{};
    header.p_type = type;
    header.p_flags = flags;
    header.p_offset = offset;
    header.p_vaddr = vaddr;
    header.p_filesz = size_bytes;
    header.p_memsz = size_bytes;
    header.p_align = 1;
    return header;
}

/// Appends section headers, with their names.
inline void append_sections(Bytes& file, Elf64_Ehdr& header, std::vector<std::pair<std::string, Elf64_Shdr>> sections) {
    std::string names(1, '\0');
    std::vector<Elf64_Shdr> headers(1);
    sections.emplace_back(".shstrtab", Elf64_Shdr{});
    for (auto& [name, section] : sections) {
        section.sh_name = static_cast<uint32_t>(names.size());
        section.sh_addralign = 1;
        names += name + '\0';
        headers.push_back(section);
    }
    headers.back().sh_type = SHT_STRTAB;
    headers.back().sh_offset = file.size();
    headers.back().sh_size = names.size();
    file.insert(file.end(), names.begin(), names.end());
    file.resize((file.size() + 7) / 8 * 8);
    header.e_shoff = file.size();
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = static_cast<uint16_t>(headers.size());
    header.e_shstrndx = static_cast<uint16_t>(headers.size() - 1);
    for (const Elf64_Shdr& section : headers)
        append_number(file, section);
}

inline Elf64_Shdr section_of(const Bytes& file, const Bytes& content, uint64_t vaddr) {
    Elf64_Shdr section{};
    section.sh_type = SHT_PROGBITS;
    section.sh_addr = vaddr;
    section.sh_offset = file.size();
    section.sh_size = content.size();
    return section;
}

inline Bytes TestElf::bytes() const {
    constexpr size_t segment_count = 3;
    constexpr size_t eh_frame_hdr_bytes = 8;
    Bytes file(sizeof(Elf64_Ehdr) + segment_count * sizeof(Elf64_Phdr));
    const uint64_t code_offset = file.size();
    append(file, code);
    const uint64_t frame_offset = file.size();
    std::vector<std::pair<std::string, Elf64_Shdr>> sections;
    if (!eh_frame.empty()) sections.emplace_back(".eh_frame", section_of(file, eh_frame, eh_frame_vaddr));
    append(file, eh_frame);
    const uint64_t hdr_vaddr = eh_frame_vaddr + (file.size() - frame_offset);
    append(file, {1, DW_EH_PE_pcrel | DW_EH_PE_sdata4, DW_EH_PE_omit, DW_EH_PE_omit});
    append_number(file, static_cast<uint32_t>(eh_frame_vaddr - (hdr_vaddr + 4)));
    if (!debug_frame.empty()) sections.emplace_back(".debug_frame", section_of(file, debug_frame, 0));
    append(file, debug_frame);
    if (is_go) sections.emplace_back(".gopclntab", section_of(file, {}, 0));
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_DYN;
    header.e_machine = EM_X86_64;
    header.e_version = EV_CURRENT;
    header.e_ehsize = sizeof header;
    header.e_phoff = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = segment_count;
    if (has_section_headers) append_sections(file, header, std::move(sections));
    const Elf64_Phdr segments[segment_count] = {
        segment(PT_LOAD, PF_R | PF_X, code_offset, code_vaddr, code.size()),
        segment(PT_LOAD, PF_R, frame_offset, eh_frame_vaddr, eh_frame.size() + eh_frame_hdr_bytes),
        segment(PT_GNU_EH_FRAME, PF_R, frame_offset + eh_frame.size(), hdr_vaddr, eh_frame_hdr_bytes),
    };
    std::memcpy(file.data(), &header, sizeof header);
    std::memcpy(file.data() + sizeof header, segments, sizeof segments);
    return file;
}

/// A file without a path that holds `content`.
inline Fd file_of(std::span<const uint8_t> content) {
    Fd file(::memfd_create("unwind_test", MFD_CLOEXEC));
    if (!file || ::write(file.get(), content.data(), content.size()) != static_cast<ssize_t>(content.size())) return {};
    return file;
}

}  // namespace memtrace::unwind_test
