// What `list`, `doctor` and `selftest` take beside their names. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "cli/options.hpp"

namespace memtrace {

/// `given` names, without dashes, the options that stand on the command line and are not the command's own; `options`
/// holds their values.
Result<Request> list_request(const Options& options, bool lists_placement, const std::vector<std::string>& given);
Result<Request> doctor_request(Options options, const std::vector<std::string>& given);
Result<Request> selftest_request(const Options& options, const std::vector<std::string>& given);

}  // namespace memtrace
