// Finds which addresses can be the last byte of a call instruction, without decoding: a superset. Uses ElfImage.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "unwind/elf_image.hpp"

namespace memtrace {

/// Reads the code of one file through a small window. Not thread-safe.
class CallScanner {
  public:
    explicit CallScanner(const ElfImage& image) : image_(image), has_fixed_code_(!image.has_text_relocations()) {}

    /// Whether a call instruction may end in [start_vaddr, end_vaddr), so that its return address - 1 lies there. True
    /// when the code cannot be read. Takes time only until the first such byte.
    bool may_end_call(uint64_t start_vaddr, uint64_t end_vaddr);

  private:
    /// The code from `vaddr` on, as much as the window holds; empty if it cannot be read.
    std::span<const uint8_t> code_at(const CodeSegment& segment, uint64_t vaddr);

    /// Bytes of the call that `code`, which lies at `vaddr`, starts with, without prefixes; 0 if it is no call.
    size_t call_bytes(std::span<const uint8_t> code, uint64_t vaddr) const;

    const ElfImage& image_;
    bool has_fixed_code_;
    std::vector<uint8_t> window_;
    uint64_t window_vaddr_ = 0;
};

}  // namespace memtrace
