#include "unwind/stack_walker.hpp"

#include <cstring>
#include <optional>

namespace memtrace {
namespace {

constexpr uint64_t lowest_code_address = 0x1000;
// Farther up than this a saved frame pointer is data, not a frame.
constexpr uint64_t frame_max_bytes = 1 << 20;
// struct rt_sigframe of x86-64 above its return address (arch/x86/include/uapi/asm/sigcontext.h).
constexpr uint64_t signal_frame_rbp = 120;
constexpr uint64_t signal_frame_rsp = 160;
constexpr uint64_t signal_frame_rip = 168;

class Walk {
  public:
    Walk(const StackCopy& stack, const std::function<CodeAt(uint64_t)>& code_at, size_t max_frames,
         std::vector<uint64_t>& return_addresses)
        : stack_(stack),
          code_at_(code_at),
          max_frames_(max_frames),
          return_addresses_(return_addresses),
          pc_(stack.pc),
          stack_pointer_(stack.stack_pointer),
          frame_pointer_(stack.frame_pointer) {}

    /// One frame; none: there is a caller to go on with.
    std::optional<WalkEnd> step();

  private:
    std::optional<uint64_t> word(uint64_t address) const;
    std::optional<WalkEnd> enter_caller(uint64_t slot, uint64_t cfa, uint64_t frame_pointer);
    std::optional<WalkEnd> step_by_rule(mt_u16 rule, const CodeAt& code);
    std::optional<WalkEnd> step_by_dictionary(const mt_unwind_rule& rule);
    std::optional<WalkEnd> step_by_frame_pointer();
    std::optional<WalkEnd> step_over_signal();

    const StackCopy& stack_;
    const std::function<CodeAt(uint64_t)>& code_at_;
    size_t max_frames_;
    std::vector<uint64_t>& return_addresses_;
    uint64_t pc_;
    uint64_t stack_pointer_;
    uint64_t frame_pointer_;
};

std::optional<uint64_t> Walk::word(uint64_t address) const {
    const uint64_t offset = address - stack_.stack_pointer;
    uint64_t value = 0;
    if (offset >= stack_.bytes.size() || stack_.bytes.size() - offset < sizeof value) return std::nullopt;
    std::memcpy(&value, stack_.bytes.data() + offset, sizeof value);
    return value;
}

std::optional<WalkEnd> Walk::enter_caller(uint64_t slot, uint64_t cfa, uint64_t frame_pointer) {
    const auto return_address = word(slot);
    if (!return_address) return WalkEnd::outside_copy;
    if (*return_address < lowest_code_address) return WalkEnd::thread_start;
    if (cfa <= stack_pointer_) return WalkEnd::no_progress;
    if (return_addresses_.size() >= max_frames_) return WalkEnd::too_many_frames;
    return_addresses_.push_back(*return_address);
    pc_ = *return_address - 1;
    stack_pointer_ = cfa;
    frame_pointer_ = frame_pointer;
    return std::nullopt;
}

std::optional<WalkEnd> Walk::step_by_frame_pointer() {
    const uint64_t frame = frame_pointer_;
    // A thread starts with rbp 0 (System V AMD64 ABI, 3.4.1).
    if (frame == 0) return WalkEnd::thread_start;
    if ((frame & 7) != 0 || frame < stack_pointer_ || frame - stack_pointer_ > frame_max_bytes) return WalkEnd::no_cfi;
    const auto caller_frame = word(frame), return_address = word(frame + 8);
    if (!caller_frame || !return_address) return WalkEnd::outside_copy;
    if (*return_address < lowest_code_address) return WalkEnd::no_cfi;
    return enter_caller(frame + 8, frame + 16, *caller_frame);
}

std::optional<WalkEnd> Walk::step_over_signal() {
    const auto frame_pointer = word(stack_pointer_ + signal_frame_rbp);
    const auto interrupted_sp = word(stack_pointer_ + signal_frame_rsp);
    const auto interrupted_pc = word(stack_pointer_ + signal_frame_rip);
    if (!frame_pointer || !interrupted_sp || !interrupted_pc) return WalkEnd::outside_copy;
    if (return_addresses_.size() >= max_frames_) return WalkEnd::too_many_frames;
    return_addresses_.push_back(*interrupted_pc);
    pc_ = *interrupted_pc;
    stack_pointer_ = *interrupted_sp;
    frame_pointer_ = *frame_pointer;
    return std::nullopt;
}

std::optional<WalkEnd> Walk::step_by_dictionary(const mt_unwind_rule& rule) {
    const bool is_rbp = rule.cfa_kind == MT_CFA_RBP || rule.cfa_kind == MT_CFA_AT_RBP;
    const auto offset_by = [](uint64_t base, mt_s32 offset) { return base + static_cast<uint64_t>(int64_t{offset}); };
    uint64_t cfa = offset_by(is_rbp ? frame_pointer_ : stack_pointer_, rule.cfa_offset);
    if (rule.cfa_kind == MT_CFA_NONE) return WalkEnd::unsupported;
    if (rule.cfa_kind == MT_CFA_AT_RSP || rule.cfa_kind == MT_CFA_AT_RBP) {
        const auto stored = word(cfa);
        if (!stored) return WalkEnd::outside_copy;
        cfa = offset_by(*stored, rule.cfa_addend);
    }
    uint64_t frame_pointer = frame_pointer_;
    if (rule.rbp_kind == MT_RBP_AT_CFA || rule.rbp_kind == MT_RBP_AT_RBP) {
        const auto saved = word(offset_by(rule.rbp_kind == MT_RBP_AT_CFA ? cfa : frame_pointer_, rule.rbp_offset));
        if (!saved) return WalkEnd::outside_copy;
        frame_pointer = *saved;
    }
    // An odd value: no step by frame pointer can start from it.
    if (rule.rbp_kind == MT_RBP_UNKNOWN) frame_pointer = 1;
    return enter_caller(cfa - 8, cfa, frame_pointer);
}

std::optional<WalkEnd> Walk::step_by_rule(mt_u16 rule, const CodeAt& code) {
    if ((rule & MT_UNWIND_SPECIAL) == 0) {
        const uint64_t base = (rule & MT_UNWIND_BASE_RBP) != 0 ? frame_pointer_ : stack_pointer_;
        const uint64_t cfa = base + 8 * static_cast<uint64_t>(rule & MT_UNWIND_CFA_MASK);
        const auto saved = static_cast<uint64_t>(rule >> MT_UNWIND_RBP_SHIFT & MT_UNWIND_RBP_MASK);
        const auto frame_pointer = saved == 0 ? frame_pointer_ : word(cfa - 8 * (saved + 1));
        if (!frame_pointer) return WalkEnd::outside_copy;
        return enter_caller(cfa - 8, cfa, *frame_pointer);
    }
    if ((rule & MT_UNWIND_DICTIONARY_BITS) == MT_UNWIND_DICTIONARY) {
        const size_t index = rule & MT_UNWIND_INDEX_MASK;
        if (index >= code.table->rules.size()) return WalkEnd::unsupported;
        return step_by_dictionary(code.table->rules[index]);
    }
    switch (rule) {
        case MT_UNWIND_STOP:
            return WalkEnd::thread_start;
        case MT_UNWIND_GAP:
            return step_by_frame_pointer();
        case MT_UNWIND_SIGNAL:
            return step_over_signal();
        case MT_UNWIND_PLT10:
        case MT_UNWIND_PLT11: {
            const uint64_t pushed_from = rule == MT_UNWIND_PLT11 ? 11 : 10;
            const uint64_t cfa = stack_pointer_ + 8 + ((pc_ & 15) >= pushed_from ? 8 : 0);
            return enter_caller(cfa - 8, cfa, frame_pointer_);
        }
        default:
            return WalkEnd::unsupported;
    }
}

std::optional<WalkEnd> Walk::step() {
    const CodeAt code = code_at_(pc_);
    return code.table == nullptr ? step_by_frame_pointer() : step_by_rule(code.table->rule_at(code.vaddr), code);
}

}  // namespace

WalkEnd walk_stack(const StackCopy& stack, const std::function<CodeAt(uint64_t pc)>& code_at, size_t max_frames,
                   std::vector<uint64_t>& return_addresses) {
    Walk walk(stack, code_at, max_frames, return_addresses);
    while (true)
        if (const auto end = walk.step()) return *end;
}

}  // namespace memtrace
