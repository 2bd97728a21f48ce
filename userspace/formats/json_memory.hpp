// JSON of mappings, of where the resident memory is, and of what is known of memory without a probe. For this folder
// only.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "reports/document.hpp"

namespace memtrace {

/// RFC 3339 in UTC with milliseconds.
std::string rfc3339(int64_t time_unix_ns);

void add_parts(nlohmann::ordered_json& object, const MappingParts& parts);
nlohmann::ordered_json json_of(const MappingTotals& mappings);
nlohmann::ordered_json json_of(const MemoryFigures& memory);
nlohmann::ordered_json json_of(const MallocCensusRecord& record);
nlohmann::ordered_json json_of(const GrowthRecord& record);

}  // namespace memtrace
