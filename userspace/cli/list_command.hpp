// `memtrace list`: the table of allocators as text. Uses probes/; prints nothing itself.
#pragma once

#include <string>

namespace memtrace {

/// The table of allocators, one function a line in aligned columns, with a header line that starts with `#`.
std::string allocator_list();

}  // namespace memtrace
