// The names of a Crystal program's types by their numbers, which each object has in its first 32 bits. Uses base and
// probes (ElfFile, Zydis).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/result.hpp"
#include "probes/elf_file.hpp"

namespace memtrace {

/// Number of a type -> its name, as Crystal writes it: "Array(String)".
using TypeNames = std::unordered_map<uint32_t, std::string>;

/// The number of String, which the compiler gives first in every program (Crystal 1.0 to 1.17).
constexpr uint32_t crystal_string_type = 1;

/// Whether the file is a Crystal program, which is told by its symbols.
bool is_crystal_program(const ElfFile& file);

/// From what `CRYSTAL_DUMP_TYPE_ID=1 crystal build` prints ("{172 - 172}: Dog", indented), other lines left out, or
/// from the file that CRYSTAL_DUMP_TYPE_INFO names (a JSON array of objects with id and name). Error: no type in it.
Result<TypeNames> parse_type_names(std::string_view text, std::string_view file_name);

/// From the program itself: `Dog.new` (symbol `*Dog@...::new` or `*Dog::new...`) writes the number into the object. A
/// development build names most of its types so, a release build few.
TypeNames find_type_names(const ElfFile& file);

}  // namespace memtrace
