// Which call sites come first, and how many are shown. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "heap/figures.hpp"

namespace memtrace {

/// What call sites are ordered by, largest first: live bytes, live blocks, growth since the previous report, age of the
/// oldest block, bytes allocated since the previous report.
enum class SiteOrder { live, count, growth, age, rate };

/// Orders sites, heap before mappings; ties by live bytes, then by index, so that an order is never left to chance.
void order_sites(std::vector<SiteFigures>& sites, SiteOrder order);

/// Keeps the first `top` heap sites and the first `top` mapping sites of an ordered list; 0 keeps all.
void keep_top_sites(std::vector<SiteFigures>& sites, size_t top);

}  // namespace memtrace
