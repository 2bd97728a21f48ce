#include "heap/ranking.hpp"

#include "catch.hpp"

using namespace memtrace;

namespace {

SiteFigures figures(uint32_t site, uint64_t live_bytes, bool is_mapping = false) {
    SiteFigures result;
    result.site = site;
    result.live_bytes = live_bytes;
    result.is_mapping = is_mapping;
    return result;
}

std::vector<uint32_t> order_of(std::vector<SiteFigures> sites, SiteOrder order) {
    order_sites(sites, order);
    std::vector<uint32_t> indexes;
    for (const SiteFigures& site : sites)
        indexes.push_back(site.site);
    return indexes;
}

using Indexes = std::vector<uint32_t>;

}  // namespace

TEST_CASE("sites are ordered by each key, largest first", "[heap]") {
    std::vector<SiteFigures> sites = {figures(1, 10), figures(2, 30), figures(3, 20)};
    sites[0].live_blocks = 9;
    sites[2].live_blocks = 4;
    sites[0].growth_bytes = -5;
    sites[1].growth_bytes = -9;
    sites[2].growth_bytes = 1;
    sites[1].ages = Ages{1, 2, 7};
    sites[2].ages = Ages{5, 6, 6};
    sites[0].allocated_since_previous_bytes = 3;
    CHECK(order_of(sites, SiteOrder::live) == Indexes{2, 3, 1});
    CHECK(order_of(sites, SiteOrder::count) == Indexes{1, 3, 2});
    CHECK(order_of(sites, SiteOrder::growth) == Indexes{3, 1, 2});
    CHECK(order_of(sites, SiteOrder::age) == Indexes{2, 3, 1});
    CHECK(order_of(sites, SiteOrder::rate) == Indexes{1, 2, 3});
}

TEST_CASE("ties go by live bytes and then by index, and heap comes before mappings", "[heap]") {
    const std::vector<SiteFigures> sites = {figures(9, 5000, true), figures(4, 7), figures(2, 7), figures(3, 8)};
    CHECK(order_of(sites, SiteOrder::growth) == Indexes{3, 2, 4, 9});
}

TEST_CASE("top keeps that many of each kind, and 0 keeps all", "[heap]") {
    std::vector<SiteFigures> sites = {figures(1, 3), figures(2, 2), figures(3, 1), figures(4, 2, true),
                                      figures(5, 1, true)};
    std::vector<SiteFigures> all = sites;
    keep_top_sites(all, 0);
    CHECK(all.size() == 5);
    keep_top_sites(sites, 1);
    REQUIRE(sites.size() == 2);
    CHECK(sites[0].site == 1);
    CHECK(sites[1].site == 4);
}
