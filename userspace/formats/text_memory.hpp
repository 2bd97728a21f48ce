// Where resident memory grew, for a person: one sentence and one bar. Uses reports/ and base/.
#pragma once

#include <string>

#include "formats/format.hpp"
#include "formats/style.hpp"
#include "reports/document.hpp"

namespace memtrace {

/// Empty where it is not known.
std::string growth_section(const ReportRecord& report, const WriterOptions& options, const Style& style);

}  // namespace memtrace
