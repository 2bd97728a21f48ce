// Where the probes of Go's runtime go. A return probe on Go code ends the program: its runtime walks stacks and meets
// the kernel's trampoline there. So nothing of a Go program's own code is return-probed, whoever asks for it. Uses the
// other files of this folder.
#pragma once

#include <vector>

#include "probes/allocator_table.hpp"
#include "probes/elf_file.hpp"
#include "probes/go_program.hpp"
#include "probes/resolve.hpp"

namespace memtrace {

/// Adds the probe points of `program`, which is that of `file`, to `found`: of the sampled heap profile, or of every
/// allocation, as the table says.
void add_go_points(const ElfFile& file, const GoProgram& program, const AllocatorTable& table, ProbePoints& found);

/// An entry of a Go function: on the jump of its check for room on the stack, which the kernel emulates, or on its
/// first instruction if it has none. None if its code cannot be read.
std::optional<Placement> place_go_probe(std::span<const uint8_t> code);

}  // namespace memtrace
