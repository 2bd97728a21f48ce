// Walks the stacks that the kernel side could not walk to their end, because they met a file without an unwind table.
// Uses unwind and symbols.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "memtrace/abi.h"
#include "symbols/stack_store.hpp"
#include "unwind/stack_walker.hpp"

namespace memtrace {

/// A stack as it was, or as far as it could be walked.
struct WalkedStack {
    std::vector<uint64_t> return_addresses;  // the allocation's caller first
    std::optional<std::string> error;        // why it ends early
};

/// For one thread.
class RawStacks {
  public:
    /// `stacks` knows the code of the address spaces and must outlive this object.
    /// `folds_stacks`: of `max_frames` frames a stack is as long as it is wanted.
    RawStacks(StackStore& stacks, uint32_t max_frames, bool folds_stacks)
        : stacks_(stacks), max_frames_(max_frames), folds_stacks_(folds_stacks) {}

    WalkedStack walk(const mt_raw_stack_event& event);

  private:
    CodeAt code_at(const mt_raw_stack_event& event, uint64_t address);

    StackStore& stacks_;
    uint32_t max_frames_;
    bool folds_stacks_;
    // Tables of every address, since a signal may have interrupted any; null: the file has none.
    std::map<const Module*, std::unique_ptr<UnwindTable>> tables_;
};

}  // namespace memtrace
