// One x86-64 ELF file, read through a file descriptor: what placing a probe needs to know of it. Uses libelf. The file
// may be anything at all: what is wrong with it is an Error or absent, never a crash, and memory is bounded by its
// size.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"

struct Elf;

namespace memtrace {

/// A function that the file defines, seen by other files or not.
struct FunctionSymbol {
    std::string_view name;  // without `@VERSION`; lives as long as the ElfFile
    uint64_t vaddr = 0;     // as linked, before the load bias
    uint64_t size_bytes = 0;
    bool is_ifunc = false;  // STT_GNU_IFUNC: vaddr is the resolver, not the function
    bool is_local = false;  // no other file can call it by name
};

/// Move-only. Reads lazily, so one thread at a time.
class ElfFile {
  public:
    /// Reads the file behind `fd`, which stays the caller's (it is duplicated) and must be open for reading and
    /// seekable. `name` stands for the file in messages. An Error names what the file is instead of x86-64 ELF.
    static Result<ElfFile> open(int fd, std::string_view name);

    const std::string& name() const { return name_; }
    /// Every definition in .dynsym and then .symtab; a function that is in both appears twice. A table that cannot be
    /// read is an Error: its functions would be missed.
    Result<std::vector<FunctionSymbol>> functions() const;
    /// The symbol whose address the dynamic linker writes into the word at `slot_vaddr` (R_X86_64_JUMP_SLOT,
    /// R_X86_64_GLOB_DAT); empty if none. Lives as long as the ElfFile.
    std::string_view symbol_of_slot(uint64_t slot_vaddr) const;
    /// A handle of the file for reading, owned by the ElfFile.
    int fd() const { return fd_.get(); }
    /// Offset in the file of an address in an executable segment; none if no such segment has it in the file.
    std::optional<uint64_t> file_offset(uint64_t vaddr) const;
    /// Up to `size_bytes` bytes of machine code at `vaddr`: fewer where the segment ends. At most max_code_bytes.
    Result<std::vector<uint8_t>> code(uint64_t vaddr, uint64_t size_bytes) const;
    /// NT_GNU_BUILD_ID in lower-case hex; empty if the file has none.
    std::string build_id() const;
    /// Whether it has a .symtab: without one, functions that no other file sees cannot be found in it.
    bool has_static_symbols() const;
    /// PT_INTERP: the dynamic linker that the file asks for; empty if none.
    std::string interpreter() const;
    /// A program (also a static PIE) that runs without a dynamic linker: no other file can bring it an allocator.
    bool is_static() const;

    static constexpr uint64_t max_code_bytes = 1 << 20;

  private:
    struct Segment {
        uint64_t vaddr;
        uint64_t offset;
        uint64_t size_bytes;  // in the file
    };
    struct ElfCloser {
        void operator()(Elf* elf) const;
    };

    ElfFile(Fd fd, std::unique_ptr<Elf, ElfCloser> elf, std::string name);
    Result<void> read_segments();
    const Segment* code_segment(uint64_t vaddr) const;
    Result<void> append_functions(uint32_t section_type, std::vector<FunctionSymbol>& functions) const;
    Error error(std::string_view why) const;

    Fd fd_;
    std::unique_ptr<Elf, ElfCloser> elf_;
    std::string name_;
    std::vector<Segment> code_segments_;
};

}  // namespace memtrace
