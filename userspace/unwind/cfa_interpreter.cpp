#include "unwind/cfa_interpreter.hpp"

#include <dwarf.h>

#include <algorithm>
#include <optional>

#include "unwind/cfa_expressions.hpp"
#include "unwind/pointer_encoding.hpp"

namespace memtrace {
namespace {

// Compilers nest one deep; more than this is no program of theirs.
constexpr size_t max_remembered = 64;
constexpr uint8_t primary_mask = 0xc0;
constexpr uint8_t operand_mask = 0x3f;

}  // namespace

CfaInterpreter::CfaInterpreter(const CommonFrame& common, const FrameProgram& program)
    : common_(common),
      program_(program),
      reader_(program.instructions),
      state_(common.initial),
      row_vaddr_(program.start_vaddr),
      vaddr_(program.start_vaddr) {}

bool CfaInterpreter::next() {
    row_vaddr_ = vaddr_;
    if (is_malformed_ || vaddr_ >= program_.end_vaddr) return false;
    while (!reader_.at_end() && vaddr_ == row_vaddr_) {
        execute(reader_.byte());
        if (reader_.has_failed()) is_malformed_ = true;
        if (is_malformed_) return false;
    }
    if (vaddr_ == row_vaddr_) vaddr_ = program_.end_vaddr;
    return true;
}

void CfaInterpreter::execute(uint8_t operation) {
    const uint8_t operand = operation & operand_mask;
    switch (operation & primary_mask) {
        case DW_CFA_advance_loc:
            return advance(operand);
        case DW_CFA_offset:
            return set_register(operand, {RegisterRule::Kind::at_cfa, factored(reader_.uleb())});
        case DW_CFA_restore:
            return restore_register(operand);
        default:
            break;
    }
    if (!execute_cfa(operation) && !execute_location(operation) && !execute_state(operation) &&
        !execute_register(operation))
        is_malformed_ = true;
}

void CfaInterpreter::advance(uint64_t code_units) {
    const uint64_t rest = program_.end_vaddr - vaddr_;
    // Past the end there is nothing to tell, and the sum could overflow.
    const bool is_past_end = common_.code_alignment != 0 && code_units > rest / common_.code_alignment;
    vaddr_ += is_past_end ? rest : code_units * common_.code_alignment;
}

void CfaInterpreter::set_location() {
    const auto skipped = static_cast<uint64_t>(reader_.position() - program_.instructions.data());
    const std::optional<uint64_t> vaddr =
        read_encoded_pointer(reader_, common_.pointer_encoding, program_.instructions_vaddr + skipped);
    if (!vaddr || *vaddr < vaddr_) {
        is_malformed_ = true;
        return;
    }
    vaddr_ = std::min(*vaddr, program_.end_vaddr);
}

bool CfaInterpreter::execute_location(uint8_t operation) {
    switch (operation) {
        case DW_CFA_nop:
            return true;
        case DW_CFA_set_loc:
            set_location();
            return true;
        case DW_CFA_advance_loc1:
            advance(reader_.byte());
            return true;
        case DW_CFA_advance_loc2:
            advance(reader_.number<uint16_t>());
            return true;
        case DW_CFA_advance_loc4:
            advance(reader_.number<uint32_t>());
            return true;
        default:
            return false;
    }
}

bool CfaInterpreter::execute_cfa(uint8_t operation) {
    uint64_t register_number = 0;
    switch (operation) {
        case DW_CFA_def_cfa:
            register_number = reader_.uleb();
            define_cfa(register_number, static_cast<int64_t>(reader_.uleb()));
            return true;
        case DW_CFA_def_cfa_sf:
            register_number = reader_.uleb();
            define_cfa(register_number, factored(static_cast<uint64_t>(reader_.sleb())));
            return true;
        case DW_CFA_def_cfa_register:
            change_cfa(reader_.uleb(), state_.cfa.offset);
            return true;
        case DW_CFA_def_cfa_offset:
            change_cfa(state_.cfa.register_number, static_cast<int64_t>(reader_.uleb()));
            return true;
        case DW_CFA_def_cfa_offset_sf:
            change_cfa(state_.cfa.register_number, factored(static_cast<uint64_t>(reader_.sleb())));
            return true;
        case DW_CFA_def_cfa_expression:
            state_.cfa = cfa_of_expression(expression());
            return true;
        default:
            return false;
    }
}

bool CfaInterpreter::execute_state(uint8_t operation) {
    switch (operation) {
        case DW_CFA_remember_state:
            if (remembered_.size() == max_remembered) is_malformed_ = true;
            if (!is_malformed_) remembered_.push_back(state_);
            return true;
        case DW_CFA_restore_state:
            if (remembered_.empty()) is_malformed_ = true;
            if (is_malformed_) return true;
            state_ = remembered_.back();
            remembered_.pop_back();
            return true;
        case DW_CFA_GNU_args_size:
            reader_.uleb();
            return true;
        default:
            return false;
    }
}

bool CfaInterpreter::execute_register(uint8_t operation) {
    if (operation < DW_CFA_offset_extended || operation > DW_CFA_GNU_negative_offset_extended) return false;
    const uint64_t number = reader_.uleb();
    switch (operation) {
        case DW_CFA_offset_extended:
            set_register(number, {RegisterRule::Kind::at_cfa, factored(reader_.uleb())});
            return true;
        case DW_CFA_offset_extended_sf:
            set_register(number, {RegisterRule::Kind::at_cfa, factored(static_cast<uint64_t>(reader_.sleb()))});
            return true;
        case DW_CFA_GNU_negative_offset_extended:
            set_register(number, {RegisterRule::Kind::at_cfa, factored(0 - reader_.uleb())});
            return true;
        case DW_CFA_restore_extended:
            restore_register(number);
            return true;
        case DW_CFA_undefined:
            set_register(number, {RegisterRule::Kind::undefined});
            return true;
        case DW_CFA_same_value:
            set_register(number, {RegisterRule::Kind::same});
            return true;
        case DW_CFA_expression:
            set_register(number, place_of_expression(expression()));
            return true;
        case DW_CFA_register:
        case DW_CFA_val_offset:
        case DW_CFA_val_offset_sf:
            reader_.uleb();
            set_register(number, {RegisterRule::Kind::other});
            return true;
        case DW_CFA_val_expression:
            expression();
            set_register(number, {RegisterRule::Kind::other});
            return true;
        default:
            return false;
    }
}

void CfaInterpreter::define_cfa(uint64_t register_number, int64_t offset) {
    state_.cfa = {CfaRule::Kind::offset, register_number, offset, 0};
}

void CfaInterpreter::change_cfa(uint64_t register_number, int64_t offset) {
    if (state_.cfa.kind != CfaRule::Kind::offset)
        is_malformed_ = true;
    else
        define_cfa(register_number, offset);
}

void CfaInterpreter::set_register(uint64_t number, RegisterRule rule) {
    if (number == dwarf_rbp) state_.rbp = rule;
    if (number == dwarf_rip) state_.return_address = rule;
}

void CfaInterpreter::restore_register(uint64_t number) {
    if (number == dwarf_rbp) state_.rbp = common_.initial.rbp;
    if (number == dwarf_rip) state_.return_address = common_.initial.return_address;
}

int64_t CfaInterpreter::factored(uint64_t value) const {
    return static_cast<int64_t>(value * static_cast<uint64_t>(common_.data_alignment));
}

std::span<const uint8_t> CfaInterpreter::expression() {
    return reader_.take(reader_.uleb());
}

}  // namespace memtrace
