// From where to where a function's code goes, also of functions that have no symbol. Uses unwind: an FDE tells it, else
// the size of a symbol.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "probes/elf_file.hpp"

namespace memtrace {

/// [start, end), addresses of the file.
struct FunctionExtent {
    uint64_t start = 0;
    uint64_t end = 0;
};

class FunctionExtents {
  public:
    /// Of all functions of `file`. What is wrong in its frame section is left out.
    static FunctionExtents read(const ElfFile& file, const std::vector<FunctionSymbol>& symbols);

    /// The function that `vaddr` is in.
    std::optional<FunctionExtent> find(uint64_t vaddr) const;

  private:
    std::vector<FunctionExtent> by_frame_;  // by start, as are those of
    std::vector<FunctionExtent> by_symbol_;
};

}  // namespace memtrace
