#include "probes/function_returns.hpp"

#include <fmt/format.h>

#include <iterator>
#include <map>

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

/// Whether the next instruction is never reached from this one.
bool ends_line(const Instruction& instruction) {
    return is_return(instruction) || instruction.decoded.mnemonic == ZYDIS_MNEMONIC_JMP ||
           instruction.decoded.mnemonic == ZYDIS_MNEMONIC_UD2 || instruction.decoded.mnemonic == ZYDIS_MNEMONIC_HLT;
}

/// gcc -fcf-protection marks the jumps through tables, which stay in the function.
bool is_table_jump(const Instruction& instruction) {
    return (instruction.decoded.attributes & ZYDIS_ATTRIB_HAS_NOTRACK) != 0;
}

}  // namespace

/// Follows the control flow, so that data between the instructions is never taken for some.
class ReturnFinder::Search {
  public:
    Search(const ReturnFinder& finder, const std::set<uint64_t>& seen_otherwise)
        : finder_(finder), seen_otherwise_(seen_otherwise) {}

    Result<void> follow(uint64_t vaddr);
    const FunctionReturns& found() const { return found_; }

  private:
    struct Function {
        FunctionExtent extent;
        std::vector<uint8_t> bytes;
    };

    Result<const Function*> function_at(uint64_t vaddr);
    Result<void> read_line(const Function& function, uint64_t vaddr);
    Result<bool> enter(uint64_t vaddr, size_t size_bytes);
    void note(const Function& function, const Instruction& instruction, uint64_t vaddr);
    void leave(uint64_t from, uint64_t to);
    Error error(std::string_view why, uint64_t vaddr) const;

    const ReturnFinder& finder_;
    const std::set<uint64_t>& seen_otherwise_;
    FunctionReturns found_;
    std::map<uint64_t, Function> functions_;         // by start
    std::map<uint64_t, uint64_t> instructions_;      // start -> end
    std::vector<uint64_t> to_do_;                    // addresses that are reached
    std::set<uint64_t> functions_with_table_jumps_;  // starts
    uint64_t refused_ = 0;  // the last place for a probe that the kernel would not take; 0: none
};

Error ReturnFinder::Search::error(std::string_view why, uint64_t vaddr) const {
    return Error{finder_.file_.name(), fmt::format("{} {:#x}", why, vaddr)};
}

Result<const ReturnFinder::Search::Function*> ReturnFinder::Search::function_at(uint64_t vaddr) {
    const auto extent = finder_.extents_.find(vaddr);
    if (!extent) return error("not known: the end of the function at", vaddr);
    const auto known = functions_.find(extent->start);
    if (known != functions_.end()) return &known->second;
    if (functions_.size() >= max_functions) return error("ends in too many other functions:", vaddr);
    auto bytes = finder_.file_.code(extent->start, extent->end - extent->start);
    if (!bytes) return bytes.error();
    return &functions_.emplace(extent->start, Function{*extent, std::move(*bytes)}).first->second;
}

/// Whether the instruction is new. An Error if it overlaps another one: then one of them is none.
Result<bool> ReturnFinder::Search::enter(uint64_t vaddr, size_t size_bytes) {
    const auto next = instructions_.upper_bound(vaddr);
    if (next != instructions_.begin()) {
        const auto& [start, end] = *std::prev(next);
        if (start == vaddr) return false;
        if (end > vaddr) return error("a jump into an instruction, to", vaddr);
    }
    if (next != instructions_.end() && next->first < vaddr + size_bytes)
        return error("a jump into an instruction, to", next->first);
    instructions_.emplace(vaddr, vaddr + size_bytes);
    return true;
}

/// A branch that leads out of a function: it ends in another one.
void ReturnFinder::Search::leave(uint64_t from, uint64_t to) {
    const uint64_t target = finder_.jumps_.behind_stub(to);
    if (target != 0 && !seen_otherwise_.contains(target) && finder_.extents_.find(target))
        to_do_.push_back(target);
    else
        found_.unseen.insert(from);
}

void ReturnFinder::Search::note(const Function& function, const Instruction& instruction, uint64_t vaddr) {
    const bool leaves_unseen = is_indirect_jump(instruction) && !is_table_jump(instruction);
    if (is_return(instruction)) found_.returns.insert(vaddr);
    if (leaves_unseen) found_.unseen.insert(vaddr);
    if ((is_return(instruction) || leaves_unseen) && uprobe_handling(instruction.bytes) == UprobeHandling::refused)
        refused_ = vaddr;
    if (is_indirect_jump(instruction) && functions_with_table_jumps_.insert(function.extent.start).second) {
        // Where it leads is not known, but for: to some instruction of the function, whose first one is the first.
        to_do_.push_back(function.extent.start);
    }
    const uint64_t target = branch_target(instruction);
    if (target == UINT64_MAX || instruction.decoded.meta.category == ZYDIS_CATEGORY_CALL) return;
    const uint64_t to = function.extent.start + target;
    if (to >= function.extent.start && to < function.extent.end)
        to_do_.push_back(to);
    else
        leave(vaddr, to);
}

/// From `vaddr` to where the flow does not go on to the next instruction; in a function with jumps to anywhere, to its
/// end.
Result<void> ReturnFinder::Search::read_line(const Function& function, uint64_t vaddr) {
    const Code code(function.bytes);
    Instruction instruction;
    for (uint64_t offset = vaddr - function.extent.start; offset < code.size(); offset = instruction.end()) {
        const uint64_t here = function.extent.start + offset;
        if (!code.decode(offset, instruction)) return error("no instruction at", here);
        const auto is_new = enter(here, instruction.bytes.size());
        if (!is_new) return is_new.error();
        const bool reads_all = functions_with_table_jumps_.contains(function.extent.start);
        if (!*is_new && !reads_all) return {};
        if (*is_new) note(function, instruction, here);
        if (ends_line(instruction) && !reads_all) return {};
    }
    return {};
}

Result<void> ReturnFinder::Search::follow(uint64_t vaddr) {
    to_do_.push_back(vaddr);
    while (!to_do_.empty()) {
        const uint64_t next = to_do_.back();
        to_do_.pop_back();
        const auto function = function_at(next);
        if (!function) return function.error();
        if (auto read = read_line(**function, next); !read) return read;
        if (refused_ != 0) return error("cannot carry a probe: the instruction at", refused_);
        if (found_.returns.size() + found_.unseen.size() > max_places) return error("too many returns:", vaddr);
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
