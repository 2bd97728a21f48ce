// One named frame of a stack, as reports and formats see it. Pure data; uses nothing. All text is printable UTF-8.
#pragma once

#include <cstdint>
#include <string>

namespace memtrace {

struct Frame {
    enum class Kind { native, jit, interpreted, kernel };

    std::string function;          // demangled; empty if unknown: show module+offset then
    std::string file;              // source file; empty if unknown
    uint32_t line = 0;             // 0 if unknown
    std::string module;            // base name of the mapped file, or "[vdso]", "[anon]"
    uint64_t offset = 0;           // file offset of the call (return address minus 1)
    uint64_t function_offset = 0;  // the call's address minus the function's start; 0 if unknown or inlined
    bool is_inlined = false;       // into the next frame of the same stack
    Kind kind = Kind::native;

    friend bool operator==(const Frame&, const Frame&) = default;
};

}  // namespace memtrace
