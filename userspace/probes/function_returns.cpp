#include "probes/function_returns.hpp"

#include <fmt/format.h>

#include "probes/instructions.hpp"
#include "probes/uprobe_instructions.hpp"

namespace memtrace {
namespace {

// Far more than any allocator has; a function that is not one should not get probes by the thousand.
constexpr size_t max_functions = 64;
constexpr size_t max_places = 512;

bool is_return(const Instruction& instruction) {
    return instruction.decoded.meta.category == ZYDIS_CATEGORY_RET;
}

/// gcc -fcf-protection marks the jumps through tables, which stay in the function.
bool is_table_jump(const Instruction& instruction) {
    return (instruction.decoded.attributes & ZYDIS_ATTRIB_HAS_NOTRACK) != 0;
}

}  // namespace

class ReturnFinder::Search {
  public:
    Search(const ReturnFinder& finder, const std::set<uint64_t>& seen_otherwise)
        : finder_(finder), seen_otherwise_(seen_otherwise) {}

    Result<void> follow(uint64_t vaddr);
    const FunctionReturns& found() const { return found_; }

  private:
    struct Branch {
        uint64_t from;
        uint64_t to;
    };

    Result<void> read(const FunctionExtent& extent);
    void note(const Instruction& instruction, uint64_t function_vaddr, std::vector<Branch>& branches);
    void leave(const Branch& branch);

    const ReturnFinder& finder_;
    const std::set<uint64_t>& seen_otherwise_;
    FunctionReturns found_;
    std::set<uint64_t> read_;      // starts of functions
    std::vector<uint64_t> to_do_;  // addresses in functions
    uint64_t refused_ = 0;         // the last place for a probe that the kernel would not take; 0: none
};

/// A branch that leads out of a function: it ends in another one.
void ReturnFinder::Search::leave(const Branch& branch) {
    const uint64_t target = finder_.jumps_.behind_stub(branch.to);
    if (target != 0 && !seen_otherwise_.contains(target) && finder_.extents_.find(target))
        to_do_.push_back(target);
    else
        found_.unseen.insert(branch.from);
}

void ReturnFinder::Search::note(const Instruction& instruction, uint64_t function_vaddr,
                                std::vector<Branch>& branches) {
    const uint64_t vaddr = function_vaddr + instruction.offset;
    const uint64_t target = branch_target(instruction);
    const bool leaves_unseen = is_indirect_jump(instruction) && !is_table_jump(instruction);
    if (is_return(instruction)) found_.returns.insert(vaddr);
    if (leaves_unseen) found_.unseen.insert(vaddr);
    if ((is_return(instruction) || leaves_unseen) && uprobe_handling(instruction.bytes) == UprobeHandling::refused)
        refused_ = vaddr;
    if (target != UINT64_MAX && instruction.decoded.meta.category != ZYDIS_CATEGORY_CALL)
        branches.push_back({vaddr, function_vaddr + target});
}

Result<void> ReturnFinder::Search::read(const FunctionExtent& extent) {
    const auto bytes = finder_.file_.code(extent.start, extent.end - extent.start);
    if (!bytes) return bytes.error();
    const Code code(*bytes);
    std::vector<Branch> branches;
    std::set<uint64_t> starts;
    Instruction instruction;
    for (uint64_t offset = 0; offset < code.size(); offset = instruction.end()) {
        if (!code.decode(offset, instruction))
            return Error{finder_.file_.name(), fmt::format("no instruction at {:#x}", extent.start + offset)};
        starts.insert(extent.start + offset);
        note(instruction, extent.start, branches);
    }
    if (refused_ != 0)
        return Error{finder_.file_.name(), fmt::format("the instruction at {:#x} cannot carry a probe", refused_)};
    for (const Branch& branch : branches) {
        if (branch.to < extent.start || branch.to >= extent.end) {
            leave(branch);
        } else if (!starts.contains(branch.to)) {
            // Then the bytes were taken for other instructions than they are, and a probe could stand inside of one.
            return Error{finder_.file_.name(), fmt::format("a jump into an instruction, to {:#x}", branch.to)};
        }
    }
    return {};
}

Result<void> ReturnFinder::Search::follow(uint64_t vaddr) {
    to_do_.push_back(vaddr);
    while (!to_do_.empty()) {
        const uint64_t next = to_do_.back();
        to_do_.pop_back();
        const auto extent = finder_.extents_.find(next);
        if (!extent)
            return Error{finder_.file_.name(), fmt::format("where the function at {:#x} ends is not known", next)};
        if (!read_.insert(extent->start).second) continue;
        if (read_.size() > max_functions || found_.returns.size() + found_.unseen.size() > max_places)
            return Error{finder_.file_.name(), "ends in too many other functions"};
        if (auto result = read(*extent); !result) return result;
    }
    return {};
}

bool ReturnFinder::calls_any(uint64_t vaddr, const std::set<uint64_t>& functions) const {
    const auto extent = extents_.find(vaddr);
    if (!extent) return false;
    const auto bytes = file_.code(extent->start, extent->end - extent->start);
    if (!bytes) return false;
    const Code code(*bytes);
    Instruction instruction;
    for (uint64_t offset = 0; code.decode(offset, instruction); offset = instruction.end()) {
        const uint64_t target = branch_target(instruction);
        if (target != UINT64_MAX && functions.contains(jumps_.behind_stub(extent->start + target))) return true;
    }
    return false;
}

Result<void> ReturnFinder::find(uint64_t vaddr, const std::set<uint64_t>& seen_otherwise,
                                FunctionReturns& returns) const {
    Search search(*this, seen_otherwise);
    if (auto followed = search.follow(vaddr); !followed) return followed;
    returns.returns.insert(search.found().returns.begin(), search.found().returns.end());
    returns.unseen.insert(search.found().unseen.begin(), search.found().unseen.end());
    return {};
}

}  // namespace memtrace
