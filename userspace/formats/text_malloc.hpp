// A census of a malloc, for a person. For this folder only.
#pragma once

#include <string>

#include "formats/format.hpp"

namespace memtrace {

/// All of it; lines end in '\n', the last one is empty.
std::string malloc_census_text(const MallocCensusRecord& census, const WriterOptions& options);

}  // namespace memtrace
