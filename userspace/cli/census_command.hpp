// `memtrace census PID`. Uses runtimes/ and formats/.
#pragma once

#include "base/result.hpp"
#include "cli/options.hpp"
#include "runtimes/crystal_types.hpp"

namespace memtrace {

/// Writes the census to standard output; the exit status.
int run_census_command(const Census& options);

/// Of --type-names; none where no file is named. Error: not readable, or without a type.
Result<TypeNames> read_type_names(const std::string& path);

}  // namespace memtrace
