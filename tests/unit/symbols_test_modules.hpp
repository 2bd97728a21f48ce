// Places in files that the tests of symbols have compiled.
#pragma once

#include <fcntl.h>

#include <fstream>
#include <string>

#include "catch.hpp"
#include "processes_test_programs.hpp"
#include "symbols/module.hpp"
#include "symbols/symbolizer.hpp"

namespace memtrace::test {

inline Module module_at(const std::string& path) {
    return Module(path, Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)));
}

/// The file offset of `symbol`, by nm and so by another way than ours.
inline uint64_t offset_of(const TemporaryFolder& folder, const std::string& path, const std::string& symbol) {
    TemporaryFolder::run("nm '" + path + "' | awk '$3 == \"" + symbol + "\" { print $1 }' > '" + folder / "nm.out'");
    std::string digits;
    std::ifstream(folder / "nm.out") >> digits;
    const auto offset = module_at(path).file_offset(std::stoull(digits, nullptr, 16));
    REQUIRE(offset);
    return *offset;
}

/// The frame of the function that holds the code.
inline const Frame& frame_at(Symbolizer& symbolizer, const CodeLocation& location) {
    return symbolizer.frames_at(location).back();
}

inline bool is_installed(const std::string& tool) {
    return std::system(("command -v " + tool + " > /dev/null").c_str()) == 0;
}

}  // namespace memtrace::test
