// Where a function returns, for probes on its return instructions: those of its own code, and of the functions that it
// ends in by a jump, because they return to its caller. Uses Zydis and unwind.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "base/result.hpp"
#include "probes/elf_file.hpp"
#include "probes/function_extents.hpp"
#include "probes/jump_targets.hpp"

namespace memtrace {

/// Addresses of the file. Each is the first byte of an instruction that was decoded and that can carry a probe.
struct FunctionReturns {
    std::set<uint64_t> returns;
    std::set<uint64_t> unseen;  // jumps to code that is not known, or whose return is seen in another way
};

/// For one file; borrows what it is made of.
class ReturnFinder {
  public:
    ReturnFinder(const ElfFile& file, const std::vector<FunctionSymbol>& symbols, const JumpTargets& jumps)
        : file_(file), jumps_(jumps), extents_(FunctionExtents::read(file, symbols)) {}

    /// Adds the returns of the function at `vaddr` to `returns`. `seen_otherwise`: functions that have probes of
    /// their own, so that a jump to them need not be followed. An Error says why they cannot be told; then none was
    /// added.
    Result<void> find(uint64_t vaddr, const std::set<uint64_t>& seen_otherwise, FunctionReturns& returns) const;
    /// Whether the function at `vaddr` itself calls, or ends in, one of `functions`.
    bool calls_any(uint64_t vaddr, const std::set<uint64_t>& functions) const;

  private:
    class Search;

    const ElfFile& file_;
    const JumpTargets& jumps_;
    FunctionExtents extents_;
};

}  // namespace memtrace
