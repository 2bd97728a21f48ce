// A census of a garbage-collected heap as a record. Uses runtimes and reports.
#pragma once

#include "base/result.hpp"
#include "cli/options.hpp"
#include "reports/document.hpp"
#include "runtimes/crystal_types.hpp"

namespace memtrace {

/// Of a Go program its runtime's profile, else libgc's objects by type. Errors: no_such_target, not_privileged,
/// no_allocator where there is no such heap, usage for a file of names.
Result<CensusRecord> take_collected_census(const Census& options);

/// Of --type-names; none where no file is named. Error: not readable, or without a type.
Result<TypeNames> read_type_names(const std::string& path);

}  // namespace memtrace
