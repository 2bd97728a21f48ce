// Where jumps of a file lead, through the stubs of its procedure linkage table. Uses Zydis.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "probes/elf_file.hpp"
#include "probes/instructions.hpp"

namespace memtrace {

/// For one file; borrows what it is made of.
class JumpTargets {
  public:
    JumpTargets(const ElfFile& file, const std::vector<FunctionSymbol>& symbols);

    /// Where a call or jump to `vaddr` ends up: behind the stub `[endbr64] [bnd] jmp *slot(%rip)` (System V AMD64 ABI,
    /// 5.2) that may be there, else `vaddr` itself; 0 if it leads out of the file.
    uint64_t behind_stub(uint64_t vaddr) const;
    /// Where the function at `vaddr` goes if a jump is all that it does; 0 if it does more.
    uint64_t of_jump_at(uint64_t vaddr) const;

  private:
    const ElfFile& file_;
    std::unordered_map<std::string_view, uint64_t> vaddrs_;
};

/// A jmp to an address that is only known at run time.
bool is_indirect_jump(const Instruction& instruction);

}  // namespace memtrace
