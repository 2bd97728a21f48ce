// The objects of collected heaps by type, for a person. For this folder only.
#pragma once

#include <string>

#include "formats/format.hpp"

namespace memtrace {

/// The table of --types, its heading first; lines end in '\n'.
std::string types_section(const ReportRecord& report, const WriterOptions& options);

/// All of `memtrace census`.
std::string census_text(const CensusRecord& census, const WriterOptions& options);

/// What a Go program's runtime had sampled before the attach and has not given back.
std::string before_attach_section(const BeforeAttachRecord& before, const WriterOptions& options);

}  // namespace memtrace
