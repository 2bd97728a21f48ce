#include "runtimes/boehm_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "probes/instructions.hpp"

namespace memtrace {
namespace {

constexpr uint64_t max_function_bytes = 256;

bool is_memory(const ZydisDecodedOperand& operand) {
    return operand.type == ZYDIS_OPERAND_TYPE_MEMORY;
}

/// eax and al are rax.
ZydisRegister whole(ZydisRegister name) {
    return ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, name);
}

/// What one memory operand says: which address it is, where that is known, and its parts.
struct Access {
    ZydisMnemonic mnemonic = ZYDIS_MNEMONIC_INVALID;
    std::optional<uint64_t> address;  // without the index
    uint64_t displacement = 0;
    bool has_index = false;
    uint8_t scale = 0;
    uint16_t bits = 0;
    ZydisRegister target = ZYDIS_REGISTER_NONE;  // of a load
};

/// Reads the straight line of one function with the values that its address computations have in the process.
class CodeReader {
  public:
    CodeReader(const ElfFile& file, const TargetMemory& memory, uint64_t bias)
        : file_(file), memory_(memory), bias_(bias) {}

    /// The function's memory accesses in their order, its immediate operands, and the functions that it calls.
    bool read(uint64_t vaddr);
    const std::vector<Access>& accesses() const { return accesses_; }
    bool has_immediate(uint64_t value) const { return std::ranges::find(immediates_, value) != immediates_.end(); }
    const std::vector<uint64_t>& calls() const { return calls_; }
    /// The access that loads what a `test` and a `setne` make a truth value of.
    const std::optional<Access>& tested() const { return tested_; }

  private:
    void note(const Instruction& instruction, uint64_t next_vaddr);
    void note_result(const Instruction& instruction, const std::optional<Access>& access);
    Access access_of(const Instruction& instruction, const ZydisDecodedOperand& operand, uint64_t next_vaddr) const;

    const ElfFile& file_;
    const TargetMemory& memory_;
    uint64_t bias_;
    std::map<ZydisRegister, uint64_t> known_;  // registers that hold an address
    std::map<ZydisRegister, Access> loaded_;   // from where the others were loaded
    std::vector<Access> accesses_;
    std::vector<uint64_t> immediates_;
    std::vector<uint64_t> calls_;
    std::optional<Access> last_test_;
    std::optional<Access> tested_;
};

Access CodeReader::access_of(const Instruction& instruction, const ZydisDecodedOperand& operand,
                             uint64_t next_vaddr) const {
    Access access{.mnemonic = instruction.decoded.mnemonic, .address = std::nullopt};
    access.displacement = static_cast<uint64_t>(operand.mem.disp.value);
    access.has_index = operand.mem.index != ZYDIS_REGISTER_NONE;
    access.scale = operand.mem.scale;
    access.bits = operand.size;
    if (operand.mem.base == ZYDIS_REGISTER_RIP) access.address = bias_ + next_vaddr + access.displacement;
    if (operand.mem.base == ZYDIS_REGISTER_NONE) access.address = access.displacement;
    if (const auto base = known_.find(operand.mem.base); base != known_.end())
        access.address = base->second + access.displacement;
    return access;
}

/// An instruction's first operand has a new value.
void CodeReader::note_result(const Instruction& instruction, const std::optional<Access>& access) {
    const ZydisDecodedOperand& target = instruction.operands[0];
    if (target.type != ZYDIS_OPERAND_TYPE_REGISTER || (target.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) == 0) return;
    const ZydisRegister name = whole(target.reg.value);
    const ZydisDecodedOperand& source = instruction.operands[1];
    const bool copies = instruction.decoded.mnemonic == ZYDIS_MNEMONIC_MOV;
    const auto copied =
        copies && source.type == ZYDIS_OPERAND_TYPE_REGISTER ? known_.find(whole(source.reg.value)) : known_.end();
    const std::optional<uint64_t> value = copied == known_.end() ? std::nullopt : std::optional(copied->second);
    known_.erase(name);
    loaded_.erase(name);
    if (value) known_[name] = *value;
    if (copies && source.type == ZYDIS_OPERAND_TYPE_IMMEDIATE) known_[name] = source.imm.value.u;
    if (!access) return;
    loaded_.insert_or_assign(name, *access);
    if (!access->address || access->has_index) return;
    if (instruction.decoded.mnemonic == ZYDIS_MNEMONIC_LEA) known_[name] = *access->address;
    if (!copies || access->bits != 64) return;
    if (const auto word = memory_.read_value<uint64_t>(*access->address)) known_[name] = *word;
}

void CodeReader::note(const Instruction& instruction, uint64_t next_vaddr) {
    std::optional<Access> access;
    for (const ZydisDecodedOperand& operand : instruction.all_operands()) {
        if (operand.visibility == ZYDIS_OPERAND_VISIBILITY_HIDDEN) continue;
        if (operand.type == ZYDIS_OPERAND_TYPE_IMMEDIATE) immediates_.push_back(operand.imm.value.u);
        if (is_memory(operand)) access = access_of(instruction, operand, next_vaddr);
    }
    if (access) accesses_.push_back(*access);
    const ZydisDecodedOperand& first = instruction.operands[0];
    if (instruction.decoded.mnemonic == ZYDIS_MNEMONIC_TEST && first.type == ZYDIS_OPERAND_TYPE_REGISTER) {
        const auto source = loaded_.find(whole(first.reg.value));
        last_test_ = source == loaded_.end() ? std::nullopt : std::optional(source->second);
    }
    if (instruction.decoded.mnemonic == ZYDIS_MNEMONIC_SETNZ && !tested_) tested_ = last_test_;
    note_result(instruction, access);
}

bool CodeReader::read(uint64_t vaddr) {
    const auto bytes = file_.code(vaddr, max_function_bytes);
    if (!bytes) return false;
    const Code code(*bytes);
    Instruction instruction;
    for (uint64_t offset = 0; code.decode(offset, instruction); offset = instruction.end()) {
        note(instruction, vaddr + instruction.end());
        if (instruction.decoded.mnemonic == ZYDIS_MNEMONIC_CALL)
            if (const uint64_t target = branch_target(instruction); target != UINT64_MAX)
                calls_.push_back(vaddr + target);
        if (instruction.decoded.meta.category == ZYDIS_CATEGORY_RET) return true;
    }
    return false;
}

class LayoutFinder {
  public:
    LayoutFinder(const ElfFile& file, const TargetMemory& memory, uint64_t bias)
        : file_(file), memory_(memory), bias_(bias) {}

    Result<BoehmLayout> find();

  private:
    bool find_addresses();
    bool find_functions();
    bool find_index(const CodeReader& code);
    bool find_header();
    bool find_counters();
    bool find_mark_state();
    /// The code of an exported function; a helper that it calls first stands for what a static build does not inline.
    CodeReader reader() const { return {file_, memory_, bias_}; }

    const ElfFile& file_;
    const TargetMemory& memory_;
    uint64_t bias_;
    std::map<std::string_view, uint64_t> functions_;
    BoehmLayout layout_;
};

bool LayoutFinder::find_functions() {
    constexpr std::array names = {"GC_is_marked",        "GC_size",           "GC_get_kind_and_size", "GC_get_gc_no",
                                  "GC_collect_a_little", "GC_get_total_bytes"};
    const auto functions = file_.functions();
    if (!functions) return false;
    for (const FunctionSymbol& function : *functions)
        if (std::ranges::find(names, function.name) != names.end()) functions_.emplace(function.name, function.vaddr);
    return functions_.size() == names.size();
}

/// HDR(p): the shape of the two-level index, and the sizes that it is made for.
bool LayoutFinder::find_index(const CodeReader& code) {
    constexpr uint64_t smallest_key_offset = 1024 * 8;  // behind the 1,024 headers of a bottom_index
    const bool has_known_sizes =
        code.has_immediate(22) && code.has_immediate(0x7ff) && code.has_immediate(12) && code.has_immediate(0x3ff);
    if (!has_known_sizes) return false;
    for (const Access& access : code.accesses()) {
        if (access.has_index && access.scale == 8 && access.address && layout_.top_index == 0)
            layout_.top_index = *access.address;
        if (access.has_index || access.displacement < smallest_key_offset || access.address) continue;
        (access.mnemonic == ZYDIS_MNEMONIC_CMP ? layout_.bottom_key : layout_.bottom_link) = access.displacement;
    }
    return layout_.top_index != 0 && layout_.bottom_key != 0 && layout_.bottom_link != 0;
}

/// GC_is_marked, GC_size and GC_get_kind_and_size read one field of a header each.
bool LayoutFinder::find_header() {
    CodeReader is_marked = reader();
    CodeReader size = reader();
    CodeReader kind = reader();
    if (!is_marked.read(functions_.at("GC_is_marked")) || !size.read(functions_.at("GC_size")) ||
        !kind.read(functions_.at("GC_get_kind_and_size")))
        return false;
    CodeReader helper = reader();
    const bool has_helper = !size.calls().empty() && helper.read(size.calls().front());
    if (!find_index(has_helper ? helper : size)) return false;
    if (is_marked.accesses().empty() || size.accesses().empty() || kind.accesses().empty()) return false;
    const auto mark = std::ranges::find_if(is_marked.accesses(), [](const Access& access) {
        return access.has_index && access.scale == 1 && access.bits == 8;
    });
    if (mark == is_marked.accesses().end() || !is_marked.has_immediate(4)) return false;
    layout_.header_marks = mark->displacement;
    layout_.header_size = size.accesses().back().displacement;
    const auto byte = std::ranges::find(kind.accesses(), uint16_t{8}, &Access::bits);
    if (byte == kind.accesses().end()) return false;
    layout_.header_kind = byte->displacement;
    // gc_priv.h: hb_block, hb_obj_kind, hb_flags, in this order since libgc 7.
    layout_.header_flags = layout_.header_kind + 1;
    layout_.header_block = layout_.header_kind - sizeof(uint64_t);
    return layout_.header_kind >= sizeof(uint64_t) && layout_.header_marks < 4096 && layout_.header_size < 4096;
}

bool LayoutFinder::find_counters() {
    CodeReader collections = reader();
    if (!collections.read(functions_.at("GC_get_gc_no")) || collections.accesses().empty()) return false;
    layout_.collection_counter = collections.accesses().back().address.value_or(0);
    CodeReader bytes = reader();
    if (!bytes.read(functions_.at("GC_get_total_bytes")) || bytes.accesses().size() < 2) return false;
    const std::span<const Access> summands = std::span(bytes.accesses()).last(2);
    layout_.allocated = {summands[0].address.value_or(0), summands[1].address.value_or(0)};
    return layout_.collection_counter != 0 && layout_.allocated[0] != 0 && layout_.allocated[1] != 0;
}

/// GC_collect_a_little ends with GC_collection_in_progress(), which is a function of its own in a static build.
bool LayoutFinder::find_mark_state() {
    CodeReader code = reader();
    if (!code.read(functions_.at("GC_collect_a_little"))) return false;
    std::optional<Access> found = code.tested();
    for (const uint64_t callee : code.calls()) {
        CodeReader helper = reader();
        if (!found && helper.read(callee) && helper.accesses().size() == 1) found = helper.tested();
    }
    if (!found || !found->address || found->bits != 32) return false;
    layout_.mark_state = *found->address;
    return true;
}

Result<BoehmLayout> LayoutFinder::find() {
    const auto error = [&](std::string why) { return Error{file_.name(), std::move(why)}; };
    if (!find_functions()) return error("not a libgc whose heap can be read: functions of libgc 8 are missing");
    if (!find_header()) return error("not a libgc whose heap can be read: its block index is of another form");
    if (!find_counters() || !find_mark_state())
        return error("not a libgc whose heap can be read: its counters are of another form");
    return layout_;
}

}  // namespace

Result<BoehmLayout> find_boehm_layout(const ElfFile& file, const TargetMemory& memory, uint64_t bias) {
    return LayoutFinder(file, memory, bias).find();
}

}  // namespace memtrace
