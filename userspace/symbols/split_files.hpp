// Units whose debug information is in a file of its own (split DWARF, .dwo). Uses libdw.
#pragma once

#include <elfutils/libdw.h>

#include <optional>

namespace memtrace {

/// The split unit of the skeleton unit `skeleton`; none when it is no skeleton or its file cannot be read. The path is
/// what the debug information says (DW_AT_dwo_name, DW_AT_comp_dir), so only a regular file is opened.
std::optional<Dwarf_Die> split_unit_of(Dwarf_Die& skeleton);

}  // namespace memtrace
