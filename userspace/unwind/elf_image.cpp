#include "unwind/elf_image.hpp"

#include <fmt/format.h>
#include <gelf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "memtrace/unwind_abi.h"
#include "unwind/pointer_encoding.hpp"

namespace memtrace {
namespace {

constexpr uint64_t page_mask = (1ull << MT_UNWIND_PAGE_SHIFT) - 1;

std::string libelf_text() {
    const char* text = elf_errmsg(elf_errno());
    return text != nullptr ? text : "unreadable";
}

std::string header_fault(Elf* elf) {
    GElf_Ehdr header;
    if (elf_kind(elf) != ELF_K_ELF) return "not an ELF file";
    if (gelf_getehdr(elf, &header) == nullptr) return "damaged ELF header: " + libelf_text();
    if (header.e_machine != EM_X86_64 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_ident[EI_DATA] != ELFDATA2LSB)
        return fmt::format("ELF for another machine (number {})", header.e_machine);
    return {};
}

// Linked files have some dozens of either. libelf would take memory for as many as a file claims.
constexpr size_t max_program_headers = 4096;
constexpr size_t max_section_names_bytes = 16 << 20;

std::vector<GElf_Phdr> program_headers(Elf* elf) {
    std::vector<GElf_Phdr> headers;
    size_t count = 0;
    if (elf_getphdrnum(elf, &count) != 0 || count > max_program_headers) return headers;
    for (size_t index = 0; index < count; ++index) {
        GElf_Phdr header;
        if (gelf_getphdr(elf, static_cast<int>(index), &header) == nullptr) return headers;
        headers.push_back(header);
    }
    return headers;
}

/// The text of all section names; empty if it cannot be read.
std::string_view section_names(Elf* elf) {
    size_t number = 0;
    GElf_Shdr header;
    if (elf_getshdrstrndx(elf, &number) != 0) return {};
    Elf_Scn* section = elf_getscn(elf, number);
    if (section == nullptr || gelf_getshdr(section, &header) == nullptr || header.sh_type == SHT_NOBITS) return {};
    if (header.sh_size > max_section_names_bytes) return {};
    const Elf_Data* data = elf_rawdata(section, nullptr);
    if (data == nullptr || data->d_buf == nullptr) return {};
    return {static_cast<const char*>(data->d_buf), data->d_size};
}

Elf_Scn* find_section(Elf* elf, std::string_view name, GElf_Shdr& header) {
    // Not by elf_strptr, which would search a whole table without ends for each section's name.
    const std::string_view names = section_names(elf);
    for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf, section)) != nullptr;) {
        if (gelf_getshdr(section, &header) == nullptr || header.sh_name >= names.size()) continue;
        const std::string_view rest = names.substr(header.sh_name);
        if (rest.starts_with(name) && rest.size() > name.size() && rest[name.size()] == '\0') return section;
    }
    return nullptr;
}

Error too_large(std::string_view name, uint64_t size_bytes) {
    return unwind_error(
        fmt::format("its {} of {} bytes is larger than {}", name, size_bytes, uint64_t{ElfImage::max_section_bytes}));
}

/// Makes the section's data plain.
Result<void> decompress(Elf_Scn* section, std::string_view name) {
    GElf_Chdr header;
    if (gelf_getchdr(section, &header) == nullptr) return unwind_error(fmt::format("its {}: {}", name, libelf_text()));
    if (header.ch_size > ElfImage::max_section_bytes) return too_large(name, header.ch_size);
    if (elf_compress(section, 0, 0) < 0) return unwind_error(fmt::format("its {}: {}", name, libelf_text()));
    return {};
}

}  // namespace

Error unwind_error(std::string_view why) {
    return Error{"cannot build an unwind table", std::string(why)};
}

void ElfImage::ElfCloser::operator()(Elf* elf) const {
    elf_end(elf);
}

Result<ElfImage> ElfImage::open(int fd) {
    struct stat status {};
    if (::fstat(fd, &status) != 0) return unwind_error(errno_text(errno));
    ElfImage image(fd, {}, static_cast<uint64_t>(status.st_size));
    if (image.has_countless_sections()) return unwind_error("it has more sections than a linked file");
    elf_version(EV_CURRENT);
    image.elf_.reset(elf_begin(fd, ELF_C_READ, nullptr));
    return check(std::move(image));
}

Result<ElfImage> ElfImage::open(std::span<const uint8_t> memory) {
    ElfImage image(-1, memory, memory.size());
    if (image.has_countless_sections()) return unwind_error("it has more sections than a linked file");
    elf_version(EV_CURRENT);
    // libelf does not write to an image that it reads; its interface is older than const.
    char* bytes = const_cast<char*>(reinterpret_cast<const char*>(memory.data()));
    if (!memory.empty()) image.elf_.reset(elf_memory(bytes, memory.size()));
    return check(std::move(image));
}

bool ElfImage::has_countless_sections() const {
    Elf64_Ehdr header{};
    const std::span bytes(reinterpret_cast<uint8_t*>(&header), sizeof header);
    // Then the number is in a section header, and libelf takes memory for so many before it can be asked.
    return read(0, bytes) == sizeof header && header.e_shnum == 0 && header.e_shoff != 0;
}

Result<ElfImage> ElfImage::check(ElfImage image) {
    if (!image.elf_) return unwind_error("not an ELF file");
    if (const std::string fault = header_fault(image.elf_.get()); !fault.empty()) return unwind_error(fault);
    if (Result<void> segments = image.read_segments(); !segments) return std::move(segments).error();
    return image;
}

Result<void> ElfImage::read_segments() {
    for (const GElf_Phdr& header : program_headers(elf_.get())) {
        if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0 || header.p_offset >= size_bytes_) continue;
        const uint64_t in_file = std::min(header.p_filesz, size_bytes_ - header.p_offset);
        if (in_file == 0 || header.p_vaddr + in_file < header.p_vaddr) continue;
        code_segments_.push_back({header.p_vaddr, header.p_offset, in_file});
    }
    std::ranges::sort(code_segments_, {}, &CodeSegment::vaddr);
    for (size_t index = 1; index < code_segments_.size(); ++index)
        if (code_segments_[index].vaddr < code_segments_[index - 1].end_vaddr())
            return unwind_error("its executable segments overlap");
    if (!code_segments_.empty() && code_segments_.back().end_vaddr() - first_code_page() > max_span_bytes)
        return unwind_error("its executable segments are more than 4 GiB apart");
    return {};
}

const CodeSegment* ElfImage::code_segment(uint64_t vaddr) const {
    const auto after = std::ranges::upper_bound(code_segments_, vaddr, {}, &CodeSegment::vaddr);
    if (after == code_segments_.begin()) return nullptr;
    const CodeSegment& segment = *std::prev(after);
    return vaddr < segment.end_vaddr() ? &segment : nullptr;
}

uint64_t ElfImage::first_code_page() const {
    return code_segments_.empty() ? 0 : code_segments_.front().vaddr & ~page_mask;
}

Result<FrameSection> ElfImage::section(std::string_view name) const {
    GElf_Shdr header;
    Elf_Scn* section = find_section(elf_.get(), name, header);
    if (section == nullptr || header.sh_type == SHT_NOBITS || header.sh_size == 0) return FrameSection{};
    if (header.sh_size > max_section_bytes) return too_large(name, header.sh_size);
    const bool is_compressed = (header.sh_flags & SHF_COMPRESSED) != 0;
    if (is_compressed)
        if (Result<void> plain = decompress(section, name); !plain) return std::move(plain).error();
    const Elf_Data* data = is_compressed ? elf_getdata(section, nullptr) : elf_rawdata(section, nullptr);
    if (data == nullptr) return unwind_error(fmt::format("its {}: {}", name, libelf_text()));
    if (data->d_buf == nullptr) return FrameSection{};
    return FrameSection{{static_cast<const uint8_t*>(data->d_buf), data->d_size}, header.sh_addr};
}

Result<FrameSection> ElfImage::eh_frame() const {
    Result<FrameSection> found = section(".eh_frame");
    if (!found || !found->bytes.empty()) return found;
    return eh_frame_by_header();
}

Result<FrameSection> ElfImage::debug_frame() const {
    return section(".debug_frame");
}

Result<FrameSection> ElfImage::eh_frame_by_header() const {
    // version, three encodings, then the pointer to .eh_frame
    constexpr uint64_t prefix_bytes = 4;
    for (const GElf_Phdr& header : program_headers(elf_.get())) {
        if (header.p_type != PT_GNU_EH_FRAME) continue;
        std::array<uint8_t, 16> bytes{};
        ByteReader reader{std::span<const uint8_t>(bytes).first(read(header.p_offset, bytes))};
        const std::span<const uint8_t> prefix = reader.take(prefix_bytes);
        if (prefix.empty() || prefix[0] != 1) continue;
        const std::optional<uint64_t> vaddr = read_encoded_pointer(reader, prefix[1], header.p_vaddr + prefix_bytes);
        if (vaddr) return bytes_to_segment_end(*vaddr);
    }
    return FrameSection{};
}

FrameSection ElfImage::bytes_to_segment_end(uint64_t vaddr) const {
    for (const GElf_Phdr& header : program_headers(elf_.get())) {
        if (header.p_type != PT_LOAD || vaddr < header.p_vaddr || vaddr - header.p_vaddr >= header.p_filesz) continue;
        const uint64_t skipped = vaddr - header.p_vaddr;
        if (header.p_offset >= size_bytes_ || skipped >= size_bytes_ - header.p_offset) continue;
        const uint64_t offset = header.p_offset + skipped;
        const uint64_t size_bytes =
            std::min({header.p_filesz - skipped, size_bytes_ - offset, uint64_t{max_section_bytes}});
        const Elf_Data* data = elf_getdata_rawchunk(elf_.get(), static_cast<int64_t>(offset), size_bytes, ELF_T_BYTE);
        if (data != nullptr) return FrameSection{{static_cast<const uint8_t*>(data->d_buf), data->d_size}, vaddr};
    }
    return FrameSection{};
}

bool ElfImage::is_go() const {
    GElf_Shdr header;
    return find_section(elf_.get(), ".gopclntab", header) != nullptr;
}

bool ElfImage::has_text_relocations() const {
    constexpr uint64_t max_dynamic_bytes = 1 << 16;
    for (const GElf_Phdr& header : program_headers(elf_.get())) {
        if (header.p_type != PT_DYNAMIC) continue;
        std::vector<Elf64_Dyn> entries(std::min(header.p_filesz, max_dynamic_bytes) / sizeof(Elf64_Dyn));
        const std::span bytes(reinterpret_cast<uint8_t*>(entries.data()), entries.size() * sizeof(Elf64_Dyn));
        entries.resize(read(header.p_offset, bytes) / sizeof(Elf64_Dyn));
        for (const Elf64_Dyn& entry : entries)
            if (entry.d_tag == DT_TEXTREL || (entry.d_tag == DT_FLAGS && (entry.d_un.d_val & DF_TEXTREL) != 0))
                return true;
    }
    return false;
}

size_t ElfImage::read(uint64_t offset, std::span<uint8_t> bytes) const {
    if (offset >= size_bytes_) return 0;
    const size_t size_bytes = std::min<uint64_t>(bytes.size(), size_bytes_ - offset);
    if (fd_ < 0) {
        std::ranges::copy(memory_.subspan(offset, size_bytes), bytes.begin());
        return size_bytes;
    }
    size_t done = 0;
    while (done < size_bytes) {
        const ssize_t got = ::pread(fd_, bytes.data() + done, size_bytes - done, static_cast<off_t>(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        done += static_cast<size_t>(got);
    }
    return done;
}

}  // namespace memtrace
