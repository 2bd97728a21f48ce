// The call sites of the text report: a table with a row a site, and its stack below the row. Pure.
#pragma once

#include <string>

#include "formats/format.hpp"
#include "formats/style.hpp"
#include "reports/document.hpp"

namespace memtrace {

/// "1 GiB reserved, 4 KiB of files": what of live mappings is no private memory that can be touched; empty: nothing.
std::string parts_text(const MappingParts& parts);

/// The section of all sites of one kind ("heap" or "mapping"), its heading first; lines end in '\n'. Empty where the
/// report has no site of that kind.
std::string site_section(const ReportRecord& report, const std::string& kind, const WriterOptions& options);

}  // namespace memtrace
