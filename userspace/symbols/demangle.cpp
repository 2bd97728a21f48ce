#include "symbols/demangle.hpp"

#include <libiberty/demangle.h>

#include <cstdlib>
#include <memory>

#include "base/text.hpp"

namespace memtrace {

std::string demangle(const std::string& symbol_name) {
    // A method of a Crystal class that another type defines: "*Array(Dog)@Array(T)::new:Array(Dog)". It is as it reads.
    if (symbol_name.starts_with('*')) return printable(symbol_name);
    // .symtab spells a versioned symbol "name@VERSION" or "name@@VERSION" (binutils' ld).
    const size_t version = symbol_name.find('@', 1);
    const std::string linkage_name = symbol_name.substr(0, version);
    constexpr int readable = DMGL_PARAMS | DMGL_ANSI;
    // DMGL_AUTO knows every language but D.
    const int style = linkage_name.starts_with("_D") ? DMGL_DLANG : DMGL_AUTO;
    const std::unique_ptr<char, decltype(&std::free)> readable_name(
        ::cplus_demangle(linkage_name.c_str(), readable | style), &std::free);
    return printable(readable_name ? readable_name.get() : linkage_name);
}

}  // namespace memtrace
