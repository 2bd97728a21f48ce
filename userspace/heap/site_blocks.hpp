// What a report says of a call site beside its sums: ages, blocks, and who holds or has inherited them. Pure; a step of
// history.hpp.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "heap/figures.hpp"
#include "heap/inheritance.hpp"
#include "heap/readings.hpp"
#include "heap/scope_draft.hpp"

namespace memtrace {

struct BlockOptions {
    uint64_t now_ns = 0;
    uint64_t older_ns = 0;  // as in FigureOptions
    bool keeps_blocks = false;
    bool is_sampled = false;
};

/// What of a site's parts is live and old enough: ages, blocks, and who holds them.
void show_blocks(SiteFigures& site, const std::vector<ScopeDraft::Part>& parts, const BlocksBySite& blocks,
                 const BlockOptions& options);

/// A call site that several parents have is one. `readings` by Site::index.
std::vector<SiteFigures> inherited_sites(const std::vector<InheritedSite>& inherited,
                                         const std::unordered_map<uint32_t, const SiteReading*>& readings);

}  // namespace memtrace
