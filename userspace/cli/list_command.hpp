// `memtrace list`: the table of allocators as text. Uses probes/; prints nothing itself.
#pragma once

#include <string>

namespace memtrace {

/// The table of allocators: a header line that starts with `#`, then one function a line in aligned columns, without
/// blanks but in the last one, so that a program can read it back. Arguments count from 1.
std::string allocator_list();

}  // namespace memtrace
