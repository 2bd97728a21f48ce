// What the objects of a collected heap say of their types: per type and per call site. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "heap/history.hpp"
#include "heap/ranking.hpp"
#include "reports/document.hpp"

namespace memtrace {

/// Objects of one type, size and call site.
struct NamedObjects {
    uint32_t site = 0;
    std::string type;
    uint64_t size_bytes = 0;  // of one
    uint64_t allocations = 0;
    std::optional<uint64_t> live;  // none when the process has ended
};

/// All types with at least `min_count` allocations, in the order of call sites (growth and age are by live bytes);
/// `top` of them, 0: all.
std::vector<TypeEntry> type_entries(std::span<const NamedObjects> objects, SiteOrder order, uint64_t min_count,
                                    size_t top);

/// Call site -> the type that most of its objects have.
std::unordered_map<uint32_t, std::string> types_of_sites(std::span<const NamedObjects> objects);

/// Leaves the call sites that allocated objects of `type`, with the figures of these objects alone; growth stays that
/// of the whole site, and so do the
/// live figures when those of the objects are not known.
void keep_type(std::vector<SiteFigures>& sites, std::span<const NamedObjects> objects, const std::string& type);

}  // namespace memtrace
