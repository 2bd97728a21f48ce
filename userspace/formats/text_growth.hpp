// How memory grows, for a person. For this folder only.
#pragma once

#include <string>

#include "formats/format.hpp"

namespace memtrace {

/// All of it; lines end in '\n', the last one is empty.
std::string growth_text(const GrowthRecord& growth, const WriterOptions& options);

}  // namespace memtrace
