// The processes of the text report: a table with a row a process, drawn as the tree that they are where the report is
// of one. Pure.
#pragma once

#include <sys/types.h>

#include <string>

#include "formats/format.hpp"
#include "formats/style.hpp"

namespace memtrace {

/// The table of the report's processes, the rest in a line below it; empty where it has but one.
std::string process_section(const ReportRecord& report, const WriterOptions& options);
/// "postgres[101]", printable; the number alone for a process that the report does not have.
std::string process_name(const ReportRecord& report, pid_t pid);

}  // namespace memtrace
