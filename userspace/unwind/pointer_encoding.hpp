// Pointers in .eh_frame and .eh_frame_hdr, by the DW_EH_PE_* encodings of the Linux Standard Base, section 10.5.1. Uses
// nothing of the project but ByteReader.
#pragma once

#include <dwarf.h>

#include <cstdint>
#include <optional>

#include "unwind/byte_reader.hpp"

namespace memtrace {

/// The number of `encoding`'s format, without its base; none for a format that does not exist.
inline std::optional<uint64_t> read_encoded_number(ByteReader& reader, uint8_t encoding) {
    switch (encoding & 0x0f) {
        case DW_EH_PE_absptr:
        case DW_EH_PE_udata8:
        case DW_EH_PE_sdata8:
            return reader.number<uint64_t>();
        case DW_EH_PE_udata2:
            return reader.number<uint16_t>();
        case DW_EH_PE_sdata2:
            return static_cast<uint64_t>(int64_t{reader.number<int16_t>()});
        case DW_EH_PE_udata4:
            return reader.number<uint32_t>();
        case DW_EH_PE_sdata4:
            return static_cast<uint64_t>(int64_t{reader.number<int32_t>()});
        case DW_EH_PE_uleb128:
            return reader.uleb();
        case DW_EH_PE_sleb128:
            return static_cast<uint64_t>(reader.sleb());
        default:
            return std::nullopt;
    }
}

/// The address of a pointer whose first byte lies at `vaddr`. Absolute and pc-relative only: linkers write no other
/// here.
inline std::optional<uint64_t> read_encoded_pointer(ByteReader& reader, uint8_t encoding, uint64_t vaddr) {
    const std::optional<uint64_t> number = read_encoded_number(reader, encoding);
    if (!number || reader.has_failed()) return std::nullopt;
    switch (encoding & 0xf0) {
        case DW_EH_PE_absptr:
            return number;
        case DW_EH_PE_pcrel:
            return *number + vaddr;
        default:
            return std::nullopt;
    }
}

}  // namespace memtrace
