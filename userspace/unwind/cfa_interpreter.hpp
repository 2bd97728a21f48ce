// Executes the call-frame instructions of one function (DWARF 5, section 6.4.2) and gives its rows. Uses nothing of the
// project but ByteReader. Time is linear in the instructions and memory constant, whatever they are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "unwind/byte_reader.hpp"
#include "unwind/frame_state.hpp"

namespace memtrace {

/// What functions share: a CIE.
struct CommonFrame {
    bool is_valid = false;
    uint64_t code_alignment = 1;
    int64_t data_alignment = 1;
    uint8_t pointer_encoding = 0;  ///< DW_EH_PE_* of the addresses of its functions
    bool has_augmentation = false;
    bool is_signal_frame = false;
    FrameState initial;  ///< after its initial instructions
};

/// One function's instructions and the addresses that they tell about.
struct FrameProgram {
    std::span<const uint8_t> instructions;
    uint64_t instructions_vaddr = 0;
    uint64_t start_vaddr = 0;
    uint64_t end_vaddr = 0;
};

/// `while (rows.next()) use(rows.row_vaddr(), rows.state());` gives the rows in the order of addresses. Not
/// thread-safe.
class CfaInterpreter {
  public:
    CfaInterpreter(const CommonFrame& common, const FrameProgram& program);

    /// Goes on to the next row; false when there is none, at the end or at an instruction that cannot be.
    bool next();
    /// From here to the next row, or the end of the function, `state()` holds.
    uint64_t row_vaddr() const { return row_vaddr_; }
    const FrameState& state() const { return state_; }
    /// Whether no instruction is left.
    bool is_finished() const { return reader_.at_end(); }
    /// After next() gave false: nothing is known from `vaddr()` on.
    bool is_malformed() const { return is_malformed_; }
    uint64_t vaddr() const { return vaddr_; }

  private:
    void execute(uint8_t operation);
    void advance(uint64_t code_units);
    void set_location();
    bool execute_location(uint8_t operation);
    bool execute_cfa(uint8_t operation);
    bool execute_register(uint8_t operation);
    bool execute_state(uint8_t operation);
    void define_cfa(uint64_t register_number, int64_t offset);
    void change_cfa(uint64_t register_number, int64_t offset);
    void set_register(uint64_t number, RegisterRule rule);
    void restore_register(uint64_t number);
    int64_t factored(uint64_t value) const;
    std::span<const uint8_t> expression();

    const CommonFrame& common_;
    const FrameProgram& program_;
    ByteReader reader_;
    FrameState state_;
    std::vector<FrameState> remembered_;
    uint64_t row_vaddr_;
    uint64_t vaddr_;
    bool is_malformed_ = false;
};

}  // namespace memtrace
