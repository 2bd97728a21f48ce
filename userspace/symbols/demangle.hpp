// Linkage names made readable. Uses base and libiberty.
#pragma once

#include <string>

namespace memtrace {

/// C++ (Itanium ABI), Rust (legacy and v0) and D names demangled, any other name as it is; without a symbol version
/// ("@@GLIBC_2.34"); always printable UTF-8. Thread-safe.
std::string demangle(const std::string& symbol_name);

}  // namespace memtrace
