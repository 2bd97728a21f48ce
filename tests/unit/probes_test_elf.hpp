// Makes small ELF files in memory for the tests of probes: one code segment, a dynamic and a static symbol table.
#pragma once

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"

namespace memtrace::test {

struct TestSymbol {
    std::string name;
    uint64_t vaddr = 0;
    uint64_t size_bytes = 0;
    bool is_dynamic = true;  // in .dynsym, else in .symtab
    unsigned char type = STT_FUNC;
    unsigned char binding = STB_GLOBAL;
    uint16_t section = 1;  // SHN_UNDEF: not defined here
};

struct TestElf {
    static constexpr uint64_t code_offset = 0x1000;
    static constexpr uint64_t code_vaddr = 0x401000;

    std::vector<uint8_t> code;
    std::vector<TestSymbol> symbols;
    std::string interpreter = {};
    std::vector<uint8_t> build_id = {};
    uint16_t file_type = ET_DYN;

    std::vector<uint8_t> bytes() const;
};

template <typename Part>
size_t append(std::vector<uint8_t>& file, const Part* parts, size_t count) {
    const size_t offset = file.size();
    const auto* first = reinterpret_cast<const uint8_t*>(parts);
    file.insert(file.end(), first, first + count * sizeof(Part));
    return offset;
}

template <typename Part>
void overwrite(std::vector<uint8_t>& file, size_t offset, const Part& part) {
    std::memcpy(file.data() + offset, &part, sizeof part);
}

/// Appends the symbols of one table and their names; fills the two section headers.
inline void append_symbols(std::vector<uint8_t>& file, const TestElf& elf, bool is_dynamic, Elf64_Shdr& table,
                           Elf64_Shdr& names) {
    std::string text(1, '\0');
    std::vector<Elf64_Sym> entries(1);
    for (const TestSymbol& symbol : elf.symbols) {
        if (symbol.is_dynamic != is_dynamic) continue;
        Elf64_Sym entry{};
        entry.st_name = static_cast<uint32_t>(text.size());
        entry.st_info = static_cast<unsigned char>(symbol.binding << 4 | symbol.type);
        entry.st_shndx = symbol.section;
        entry.st_value = symbol.vaddr;
        entry.st_size = symbol.size_bytes;
        entries.push_back(entry);
        text += symbol.name + '\0';
    }
    table.sh_type = is_dynamic ? SHT_DYNSYM : SHT_SYMTAB;
    table.sh_offset = append(file, entries.data(), entries.size());
    table.sh_size = entries.size() * sizeof(Elf64_Sym);
    table.sh_entsize = sizeof(Elf64_Sym);
    table.sh_addralign = 8;
    names.sh_type = SHT_STRTAB;
    names.sh_offset = append(file, text.data(), text.size());
    names.sh_size = text.size();
    names.sh_addralign = 1;
    file.resize((file.size() + 7) / 8 * 8);
}

inline Elf64_Phdr segment(uint32_t type, uint32_t flags, uint64_t offset, uint64_t vaddr, uint64_t size_bytes) {
    Elf64_Phdr header{};
    header.p_type = type;
    header.p_flags = flags;
    header.p_offset = offset;
    header.p_vaddr = vaddr;
    header.p_filesz = size_bytes;
    header.p_memsz = size_bytes;
    header.p_align = type == PT_NOTE ? 4 : 1;
    return header;
}

inline std::vector<uint8_t> build_id_note(const std::vector<uint8_t>& id) {
    std::vector<uint8_t> note;
    const Elf64_Nhdr header{4, static_cast<uint32_t>(id.size()), NT_GNU_BUILD_ID};
    append(note, &header, 1);
    append(note, "GNU", 4);
    append(note, id.data(), id.size());
    note.resize((note.size() + 3) / 4 * 4);
    return note;
}

inline std::vector<uint8_t> TestElf::bytes() const {
    std::vector<uint8_t> file(code_offset);
    append(file, code.data(), code.size());
    file.resize((file.size() + 7) / 8 * 8);
    std::vector<Elf64_Shdr> sections(6);
    sections[1].sh_type = SHT_PROGBITS;
    sections[1].sh_addr = code_vaddr;
    sections[1].sh_offset = code_offset;
    sections[1].sh_size = code.size();
    append_symbols(file, *this, true, sections[2], sections[3]);
    append_symbols(file, *this, false, sections[4], sections[5]);
    sections[2].sh_link = 3;
    sections[4].sh_link = 5;
    std::vector<Elf64_Phdr> segments = {segment(PT_LOAD, PF_R | PF_X, code_offset, code_vaddr, code.size())};
    if (!interpreter.empty()) {
        const size_t offset = append(file, interpreter.c_str(), interpreter.size() + 1);
        segments.push_back(segment(PT_INTERP, PF_R, offset, 0, interpreter.size() + 1));
        file.resize((file.size() + 7) / 8 * 8);
    }
    if (!build_id.empty()) {
        const std::vector<uint8_t> note = build_id_note(build_id);
        segments.push_back(segment(PT_NOTE, PF_R, append(file, note.data(), note.size()), 0, note.size()));
        file.resize((file.size() + 7) / 8 * 8);
    }
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = file_type;
    header.e_machine = EM_X86_64;
    header.e_version = EV_CURRENT;
    header.e_ehsize = sizeof header;
    header.e_phoff = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = static_cast<uint16_t>(segments.size());
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = static_cast<uint16_t>(sections.size());
    header.e_shoff = append(file, sections.data(), sections.size());
    overwrite(file, 0, header);
    for (size_t index = 0; index < segments.size(); ++index)
        overwrite(file, sizeof header + index * sizeof(Elf64_Phdr), segments[index]);
    return file;
}

/// A file without a path that holds `content`.
inline Fd file_of(std::span<const uint8_t> content) {
    Fd fd(::memfd_create("memtrace-test", MFD_CLOEXEC));
    size_t written = 0;
    while (written < content.size()) {
        const ssize_t length = ::write(fd.get(), content.data() + written, content.size() - written);
        if (length <= 0) return Fd();
        written += static_cast<size_t>(length);
    }
    return fd;
}

inline Fd file_of(std::string_view content) {
    return file_of(std::span(reinterpret_cast<const uint8_t*>(content.data()), content.size()));
}

}  // namespace memtrace::test
