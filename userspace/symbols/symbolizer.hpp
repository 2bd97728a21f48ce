// Names for places in files: functions, inlined ones too, source file, line. Uses base, libdw and libdwfl; debug files
// are found on this host, in the file system of the process, or with debuginfod (debug_files.hpp). Never on the hot
// path; every answer is cached.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "symbols/address_space_map.hpp"
#include "symbols/frame.hpp"

namespace memtrace {

class Debuginfod;
class ModuleSymbols;

/// For one thread. Modules must outlive it.
class Symbolizer {
  public:
    Symbolizer();
    Symbolizer(Symbolizer&&) noexcept;
    Symbolizer& operator=(Symbolizer&&) noexcept;
    ~Symbolizer();

    /// The frames at `location`, which is that of the call itself (return address minus 1): innermost first, the
    /// functions that were inlined there before the function that holds the code. Never empty. The reference stays
    /// valid as long as the symbolizer.
    const std::vector<Frame>& frames_at(const CodeLocation& location);

  private:
    std::unique_ptr<Debuginfod> servers_;
    std::unordered_map<const Module*, std::unique_ptr<ModuleSymbols>> modules_;
};

}  // namespace memtrace
