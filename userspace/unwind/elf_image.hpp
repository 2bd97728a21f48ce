// The parts of an ELF file that an unwind table is made from: executable segments and frame sections. Uses base and
// libelf. Reads by pread and never maps a file, so that one that shrinks meanwhile is short and not a SIGBUS.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.hpp"

struct Elf;

namespace memtrace {

/// An executable segment, as far as the file holds it.
struct CodeSegment {
    uint64_t vaddr = 0;
    uint64_t offset = 0;
    uint64_t size_bytes = 0;

    uint64_t end_vaddr() const { return vaddr + size_bytes; }
};

/// Bytes of .eh_frame or .debug_frame; they live as long as the ElfImage.
struct FrameSection {
    std::span<const uint8_t> bytes;
    uint64_t vaddr = 0;
};

/// Move-only; not thread-safe.
class ElfImage {
  public:
    /// `fd` stays the caller's and must stay open as long as the image.
    static Result<ElfImage> open(int fd);
    /// `image` must live as long as the ElfImage.
    static Result<ElfImage> open(std::span<const uint8_t> image);

    /// By address, disjoint, not empty; all within max_span_bytes.
    const std::vector<CodeSegment>& code_segments() const { return code_segments_; }
    const CodeSegment* code_segment(uint64_t vaddr) const;
    /// Start of the page of the first executable byte; 0 if there is none.
    uint64_t first_code_page() const;
    /// Found by its section header, else through the program header PT_GNU_EH_FRAME. Empty if there is none.
    Result<FrameSection> eh_frame() const;
    /// Uncompressed where it is compressed. Empty if there is none.
    Result<FrameSection> debug_frame() const;
    bool is_go() const;
    /// Whether the dynamic linker changes the code: then what the file holds of it is not what runs.
    bool has_text_relocations() const;
    /// Reads up to `bytes.size()` bytes at `offset`; how many there were.
    size_t read(uint64_t offset, std::span<uint8_t> bytes) const;

    /// A frame section larger than this is an Error: the largest known, of whole browsers, take a quarter of it.
    static constexpr uint64_t max_section_bytes = 256ull << 20;
    /// From the page of the first executable byte to the last: an offset in it takes 32 bits.
    static constexpr uint64_t max_span_bytes = ~uint32_t{0};

  private:
    struct ElfCloser {
        void operator()(Elf* elf) const;
    };

    ElfImage(int fd, std::span<const uint8_t> memory, uint64_t size_bytes)
        : fd_(fd), memory_(memory), size_bytes_(size_bytes) {}
    bool has_countless_sections() const;
    static Result<ElfImage> check(ElfImage image);
    Result<void> read_segments();
    Result<FrameSection> section(std::string_view name) const;
    Result<FrameSection> eh_frame_by_header() const;
    FrameSection bytes_to_segment_end(uint64_t vaddr) const;

    std::unique_ptr<Elf, ElfCloser> elf_;
    int fd_ = -1;
    std::span<const uint8_t> memory_;
    uint64_t size_bytes_ = 0;
    std::vector<CodeSegment> code_segments_;
};

/// The message of everything that makes a file useless for unwinding.
Error unwind_error(std::string_view why);

}  // namespace memtrace
