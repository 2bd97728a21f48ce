#include "probes/elf_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gelf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace memtrace {
namespace {

// Longer names are cut: the functions looked for are short, and all names of a damaged table may be one long text.
constexpr size_t max_name_bytes = 4096;

/// Crystal's names begin with a star and have an @ that begins no version: `*Array(Dog)@Array(T)::new`.
std::string_view without_version(std::string_view name) {
    return name.starts_with('*') ? name : name.substr(0, name.find('@'));
}
constexpr std::string_view not_elf_hint = "give a program or a library for 64-bit x86";

/// Why libelf's last call on this thread failed.
std::string libelf_text() {
    const char* text = elf_errmsg(elf_errno());
    return text != nullptr ? text : "unreadable";
}

std::string open_failure(int fd) {
    struct stat status {};
    if (::fstat(fd, &status) != 0) return errno_text(errno);
    if (!S_ISREG(status.st_mode)) return "not a regular file";
    if (status.st_size == 0) return "the file is empty";
    return "not an ELF file";
}

/// Empty if the header is that of a linked x86-64 file.
std::string header_fault(Elf* elf) {
    GElf_Ehdr header;
    if (elf_kind(elf) != ELF_K_ELF) return "not an ELF file";
    if (gelf_getehdr(elf, &header) == nullptr) return "damaged ELF header: " + libelf_text();
    if (header.e_machine != EM_X86_64 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_ident[EI_DATA] != ELFDATA2LSB)
        return fmt::format("ELF for another machine (number {})", header.e_machine);
    if (header.e_type != ET_EXEC && header.e_type != ET_DYN) return "neither a program nor a shared library";
    return {};
}

/// Calls `visit(program_header)` for each; false as soon as one cannot be read.
template <typename Visit>
bool for_each_program_header(Elf* elf, Visit visit) {
    size_t count = 0;
    if (elf_getphdrnum(elf, &count) != 0) return false;
    for (size_t index = 0; index < count; ++index) {
        GElf_Phdr header;
        if (gelf_getphdr(elf, static_cast<int>(index), &header) == nullptr) return false;
        visit(header);
    }
    return true;
}

/// The bytes of a segment as libelf holds them; null if they are not in the file.
Elf_Data* segment_data(Elf* elf, const GElf_Phdr& header, Elf_Type type) {
    // Note headers, interpreter paths and dynamic sections are small; a size beyond this is not one.
    constexpr uint64_t max_bytes = 1 << 20;
    if (header.p_filesz == 0 || header.p_filesz > max_bytes) return nullptr;
    return elf_getdata_rawchunk(elf, static_cast<int64_t>(header.p_offset), header.p_filesz, type);
}

std::string build_id_of(Elf_Data* data) {
    GElf_Nhdr note;
    size_t name_offset = 0;
    size_t description_offset = 0;
    for (size_t offset = 0; (offset = gelf_getnote(data, offset, &note, &name_offset, &description_offset)) > 0;) {
        const auto* bytes = static_cast<const uint8_t*>(data->d_buf);
        const std::string_view owner(reinterpret_cast<const char*>(bytes) + name_offset, note.n_namesz);
        if (note.n_type != NT_GNU_BUILD_ID || owner != std::string_view(ELF_NOTE_GNU, sizeof ELF_NOTE_GNU)) continue;
        std::string hex;
        for (uint32_t index = 0; index < note.n_descsz; ++index)
            hex += fmt::format("{:02x}", bytes[description_offset + index]);
        return hex;
    }
    return {};
}

bool says_pie(Elf_Data* data) {
    GElf_Dyn entry;
    for (int index = 0; gelf_getdyn(data, index, &entry) != nullptr && entry.d_tag != DT_NULL; ++index)
        if (entry.d_tag == DT_FLAGS_1) return (entry.d_un.d_val & DF_1_PIE) != 0;
    return false;
}

/// Local ones too: an allocator that is linked statically, with hidden visibility or by link-time optimization, has no
/// others.
bool is_function(const GElf_Sym& symbol) {
    const unsigned type = GELF_ST_TYPE(symbol.st_info);
    // A PLT stub of a non-PIC program is an undefined symbol with a value.
    if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_ABS) return false;
    return type == STT_FUNC || type == STT_GNU_IFUNC;
}

/// The symbol of the first relocation in `section` that fills the word at `slot_vaddr`; 0 if there is none.
uint32_t symbol_of_relocation(Elf_Scn* section, uint64_t slot_vaddr) {
    Elf_Data* data = elf_getdata(section, nullptr);
    const size_t count = data == nullptr ? 0 : data->d_size / sizeof(Elf64_Rela);
    for (size_t index = 0; index < count; ++index) {
        GElf_Rela relocation;
        if (gelf_getrela(data, static_cast<int>(index), &relocation) == nullptr) return 0;
        const uint64_t type = GELF_R_TYPE(relocation.r_info);
        if (relocation.r_offset == slot_vaddr && (type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT))
            return static_cast<uint32_t>(GELF_R_SYM(relocation.r_info));
    }
    return 0;
}

}  // namespace

void ElfFile::ElfCloser::operator()(Elf* elf) const {
    elf_end(elf);
}

ElfFile::ElfFile(Fd fd, std::unique_ptr<Elf, ElfCloser> elf, std::string name)
    : fd_(std::move(fd)), elf_(std::move(elf)), name_(std::move(name)) {}

Error ElfFile::error(std::string_view why) const {
    return Error{name_, std::string(why)};
}

Result<ElfFile> ElfFile::open(int fd, std::string_view name) {
    const auto fail = [&](std::string why) {
        return Error{std::string(name), std::move(why), std::string(not_elf_hint)};
    };
    elf_version(EV_CURRENT);
    Fd own_fd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!own_fd) return Error{std::string(name), errno_text(errno)};
    struct stat status {};
    if (::fstat(own_fd.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0)
        return fail(open_failure(own_fd.get()));
    std::unique_ptr<Elf, ElfCloser> elf(elf_begin(own_fd.get(), ELF_C_READ, nullptr));
    if (!elf) return fail(open_failure(own_fd.get()));
    if (std::string fault = header_fault(elf.get()); !fault.empty()) return fail(std::move(fault));
    ElfFile file(std::move(own_fd), std::move(elf), std::string(name));
    if (auto segments = file.read_segments(); !segments) return segments.error();
    return file;
}

Result<void> ElfFile::read_segments() {
    const bool is_read = for_each_program_header(elf_.get(), [&](const GElf_Phdr& header) {
        const bool is_code = header.p_type == PT_LOAD && (header.p_flags & PF_X) != 0;
        const bool is_sane =
            header.p_vaddr + header.p_filesz >= header.p_vaddr && header.p_offset + header.p_filesz >= header.p_offset;
        if (is_code && is_sane) code_segments_.push_back({header.p_vaddr, header.p_offset, header.p_filesz});
    });
    if (!is_read) return error("damaged program headers: " + libelf_text());
    return {};
}

Result<void> ElfFile::append_functions(uint32_t section_type, std::vector<FunctionSymbol>& functions) const {
    GElf_Shdr header;
    // A file has at most one section of each type (ELF, gABI chapter 4); a damaged one could have thousands.
    Elf_Scn* section = nullptr;
    do {
        section = elf_nextscn(elf_.get(), section);
        if (section == nullptr) return {};
        if (gelf_getshdr(section, &header) == nullptr) return error("damaged section headers: " + libelf_text());
    } while (header.sh_type != section_type);
    Elf_Data* data = elf_getdata(section, nullptr);
    if (data == nullptr) return error("damaged symbol table: " + libelf_text());
    const size_t count = data->d_size / sizeof(Elf64_Sym);
    for (size_t index = 0; index < count; ++index) {
        GElf_Sym symbol;
        if (gelf_getsym(data, static_cast<int>(index), &symbol) == nullptr)
            return error("damaged symbol table: " + libelf_text());
        if (!is_function(symbol)) continue;
        const char* text = elf_strptr(elf_.get(), header.sh_link, symbol.st_name);
        if (text == nullptr) return error("damaged symbol names: " + libelf_text());
        const std::string_view name(text, ::strnlen(text, max_name_bytes));
        functions.push_back({without_version(name), symbol.st_value, symbol.st_size,
                             GELF_ST_TYPE(symbol.st_info) == STT_GNU_IFUNC, GELF_ST_BIND(symbol.st_info) == STB_LOCAL});
    }
    return {};
}

Result<std::vector<FunctionSymbol>> ElfFile::functions() const {
    std::vector<FunctionSymbol> functions;
    for (const uint32_t section_type : {uint32_t{SHT_DYNSYM}, uint32_t{SHT_SYMTAB}})
        if (auto appended = append_functions(section_type, functions); !appended) return appended.error();
    return functions;
}

std::string_view ElfFile::symbol_of_slot(uint64_t slot_vaddr) const {
    for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf_.get(), section)) != nullptr;) {
        GElf_Shdr header;
        if (gelf_getshdr(section, &header) == nullptr || header.sh_type != SHT_RELA) continue;
        const uint32_t number = symbol_of_relocation(section, slot_vaddr);
        Elf_Scn* symbols = number == 0 ? nullptr : elf_getscn(elf_.get(), header.sh_link);
        Elf_Data* data = symbols == nullptr ? nullptr : elf_getdata(symbols, nullptr);
        GElf_Sym symbol;
        if (data == nullptr || gelf_getsym(data, static_cast<int>(number), &symbol) == nullptr) continue;
        if (gelf_getshdr(symbols, &header) == nullptr) continue;
        const char* text = elf_strptr(elf_.get(), header.sh_link, symbol.st_name);
        if (text != nullptr) return std::string_view(text, ::strnlen(text, max_name_bytes));
    }
    return {};
}

const ElfFile::Segment* ElfFile::code_segment(uint64_t vaddr) const {
    for (const Segment& segment : code_segments_)
        if (vaddr >= segment.vaddr && vaddr - segment.vaddr < segment.size_bytes) return &segment;
    return nullptr;
}

std::optional<uint64_t> ElfFile::file_offset(uint64_t vaddr) const {
    const Segment* segment = code_segment(vaddr);
    if (segment == nullptr) return std::nullopt;
    return segment->offset + (vaddr - segment->vaddr);
}

Result<std::vector<uint8_t>> ElfFile::code(uint64_t vaddr, uint64_t size_bytes) const {
    const Segment* segment = code_segment(vaddr);
    if (segment == nullptr) return error(fmt::format("no code at address {:#x}", vaddr));
    const uint64_t into_segment = vaddr - segment->vaddr;
    std::vector<uint8_t> bytes(std::min({size_bytes, segment->size_bytes - into_segment, max_code_bytes}));
    const auto offset = static_cast<off_t>(segment->offset + into_segment);
    const ssize_t length = ::pread(fd_.get(), bytes.data(), bytes.size(), offset);
    if (length < 0) return error("cannot read its code: " + errno_text(errno));
    bytes.resize(static_cast<size_t>(length));
    return bytes;
}

std::string ElfFile::build_id() const {
    std::string id;
    for_each_program_header(elf_.get(), [&](const GElf_Phdr& header) {
        if (header.p_type != PT_NOTE || !id.empty()) return;
        if (Elf_Data* data = segment_data(elf_.get(), header, header.p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR))
            id = build_id_of(data);
    });
    return id;
}

bool ElfFile::has_static_symbols() const {
    for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf_.get(), section)) != nullptr;) {
        GElf_Shdr header;
        if (gelf_getshdr(section, &header) != nullptr && header.sh_type == SHT_SYMTAB) return true;
    }
    return false;
}

std::string ElfFile::interpreter() const {
    std::string path;
    for_each_program_header(elf_.get(), [&](const GElf_Phdr& header) {
        if (header.p_type != PT_INTERP || !path.empty()) return;
        if (Elf_Data* data = segment_data(elf_.get(), header, ELF_T_BYTE)) {
            const std::string_view bytes(static_cast<const char*>(data->d_buf), data->d_size);
            path = bytes.substr(0, bytes.find('\0'));
        }
    });
    return path;
}

bool ElfFile::is_static() const {
    GElf_Ehdr header;
    if (gelf_getehdr(elf_.get(), &header) == nullptr || !interpreter().empty()) return false;
    if (header.e_type == ET_EXEC) return true;
    bool is_pie = false;
    for_each_program_header(elf_.get(), [&](const GElf_Phdr& segment) {
        if (segment.p_type != PT_DYNAMIC) return;
        if (Elf_Data* data = segment_data(elf_.get(), segment, ELF_T_DYN)) is_pie = is_pie || says_pie(data);
    });
    return is_pie;
}

}  // namespace memtrace
