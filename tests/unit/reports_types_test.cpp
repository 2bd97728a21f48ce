// Objects of a collected heap by type and by call site.
#include "reports/types.hpp"

#include "catch.hpp"

using namespace memtrace;

namespace {

const std::vector<NamedObjects> objects = {{.site = 1, .type = "Dog", .size_bytes = 24, .allocations = 10, .live = 4},
                                           {.site = 2, .type = "Dog", .size_bytes = 24, .allocations = 5, .live = 5},
                                           {.site = 2, .type = "Cat", .size_bytes = 100, .allocations = 6, .live = 1},
                                           {.site = 3, .type = "Gone", .size_bytes = 8, .allocations = 99, .live = 0}};

std::vector<std::string> names(const std::vector<TypeEntry>& entries) {
    std::vector<std::string> result;
    for (const TypeEntry& entry : entries)
        result.push_back(entry.type);
    return result;
}

SiteFigures site(uint32_t index) {
    SiteFigures figures;
    figures.site = index;
    return figures;
}

}  // namespace

TEST_CASE("types are summed over call sites and ordered", "[reports]") {
    const auto by_live = type_entries(objects, SiteOrder::live, 0, 0);
    CHECK(names(by_live) == std::vector<std::string>{"Dog", "Cat", "Gone"});
    CHECK(by_live[0].live_bytes == 9 * 24);
    CHECK(by_live[0].live_blocks == 9);
    CHECK(by_live[0].allocated_bytes == 15 * 24);
    CHECK(by_live[0].allocations == 15);
    CHECK(names(type_entries(objects, SiteOrder::rate, 0, 0)) == std::vector<std::string>{"Gone", "Cat", "Dog"});
    CHECK(names(type_entries(objects, SiteOrder::count, 0, 1)) == std::vector<std::string>{"Dog"});
    CHECK(names(type_entries(objects, SiteOrder::live, 7, 0)) == std::vector<std::string>{"Dog", "Gone"});
    CHECK(type_entries({}, SiteOrder::live, 0, 0).empty());
}

TEST_CASE("a call site is of the type that most of its objects have", "[reports]") {
    const auto types = types_of_sites(objects);
    CHECK(types.at(1) == "Dog");
    CHECK(types.at(2) == "Cat");
    CHECK(!types.contains(4));
}

TEST_CASE("a type's call sites show what they hold of it", "[reports]") {
    std::vector<SiteFigures> sites = {site(1), site(2), site(3), site(4)};
    keep_type(sites, objects, "Dog");
    REQUIRE(sites.size() == 2);
    CHECK(sites[0].live_blocks == 4);
    CHECK(sites[0].totals.allocations == 10);
    CHECK(sites[0].totals.frees == 6);
    CHECK(sites[1].live_bytes == 5 * 24);
    CHECK(sites[1].totals.live_bytes() == 5 * 24);
    std::vector<NamedObjects> ended = objects;
    for (NamedObjects& object : ended)
        object.live.reset();
    CHECK(!type_entries(ended, SiteOrder::live, 0, 0)[0].live_bytes);
    keep_type(sites, ended, "Dog");
    CHECK(sites[0].live_blocks == 4);
    keep_type(sites, objects, "Cow");
    CHECK(sites.empty());
}
