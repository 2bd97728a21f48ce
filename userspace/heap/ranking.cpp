#include "heap/ranking.hpp"

#include <algorithm>
#include <tuple>

namespace memtrace {
namespace {

int64_t rank_of(const SiteFigures& site, SiteOrder order) {
    switch (order) {
        case SiteOrder::live:
            return static_cast<int64_t>(site.live_bytes);
        case SiteOrder::count:
            return static_cast<int64_t>(site.live_blocks);
        case SiteOrder::growth:
            return site.growth_bytes;
        case SiteOrder::age:
            return site.ages ? static_cast<int64_t>(site.ages->max_ns) : -1;
        case SiteOrder::rate:
            return static_cast<int64_t>(site.allocated_since_previous_bytes);
    }
    return 0;
}

}  // namespace

void order_sites(std::vector<SiteFigures>& sites, SiteOrder order) {
    const auto key = [order](const SiteFigures& site) {
        return std::tuple(!site.is_mapping, rank_of(site, order), site.live_bytes, site.live_blocks, ~site.site);
    };
    std::sort(sites.begin(), sites.end(),
              [&](const SiteFigures& left, const SiteFigures& right) { return key(left) > key(right); });
}

void keep_top_sites(std::vector<SiteFigures>& sites, size_t top) {
    if (top == 0) return;
    size_t heap_seen = 0;
    size_t mappings_seen = 0;
    std::erase_if(sites,
                  [&](const SiteFigures& site) { return (site.is_mapping ? mappings_seen : heap_seen)++ >= top; });
}

}  // namespace memtrace
