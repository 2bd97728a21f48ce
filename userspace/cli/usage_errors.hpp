// Complaints about a command line, in the house's form.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "cli/options.hpp"

namespace memtrace {

/// With ExitStatus::usage.
Error usage_error(std::string what, std::string why, std::string hint);

/// From CLI11's sentence, in which the option's name comes first, with or without its dashes.
Error option_error(std::string_view sentence);

/// Nothing is to be traced; a lone `interval` was probably meant as a process.
Error no_target_error(const Options& options, const std::string& interval);

}  // namespace memtrace
