// `memtrace list`: the allocators that memtrace knows as text. Uses probes/; prints nothing itself.
#pragma once

#include <string>

namespace memtrace {

/// The built-in functions: a comment line that says what families `*` stands for, a header line that starts with `#`
/// too, then one function a line in aligned columns, without blanks but in the last one, so that --allocators can read
/// it back.
std::string allocator_list();

}  // namespace memtrace
