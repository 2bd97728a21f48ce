// The separate debug file of an ELF file, for who needs its symbols before any address is named. Uses base and libelf.
#pragma once

#include <string>

#include "base/fd.hpp"

namespace memtrace {

/// The debug file that belongs to the file behind `fd`, found by build-id or .gnu_debuglink as for names of frames, but
/// not on servers; no Fd if there is none. `path` is where the file is or was, for a link that is relative to it.
Fd open_separate_debug_file(int fd, const std::string& path);

}  // namespace memtrace
