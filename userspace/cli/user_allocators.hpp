// All functions that the user named, from the command line and from a file. Uses probes/ and symbols/; reads files.
#pragma once

#include <vector>

#include "base/result.hpp"
#include "cli/options.hpp"
#include "probes/user_functions.hpp"

namespace memtrace {

/// Each symbol of a file once; those that say nothing of a file first, then those with a file's name, then those with a
/// path: for AllocatorTable, in which the last one wins. A path is followed to the file itself, which is what
/// /proc/PID/maps shows; names are demangled where the user gave none. Errors, of status usage: the file of
/// --allocators cannot be read or is wrong, too many functions.
Result<std::vector<UserFunction>> user_functions_of(const Options& options);

}  // namespace memtrace
