// Linkage names made readable. Uses base and libiberty.
#pragma once

#include <string>

namespace memtrace {

/// C++ (Itanium ABI), Rust (legacy and v0) and D names demangled, any other name as it is; always printable UTF-8.
/// Thread-safe.
std::string demangle(const std::string& linkage_name);

}  // namespace memtrace
