// Slopes and patterns of made-up series, and the use of made-up mappings.
#include "heap/growth_series.hpp"
#include "catch.hpp"
#include "processes/memory_use.hpp"

using namespace memtrace;

namespace {

constexpr uint64_t second_ns = 1'000'000'000;
constexpr uint64_t mib = 1 << 20;

/// A look each second.
template <typename Bytes>
SeriesTrend trend_of(uint64_t seconds, Bytes bytes_at) {
    GrowthSeries series;
    for (uint64_t second = 0; second <= seconds; ++second)
        series.add(5 * second_ns + second * second_ns, bytes_at(second));
    return series.trend();
}

ResidentMapping mapping(uint64_t start, uint64_t end, std::string_view permissions, std::string_view path,
                        uint64_t rss_bytes) {
    ResidentMapping made_up;
    made_up.mapping.start = start;
    made_up.mapping.end = end;
    made_up.mapping.is_readable = permissions[0] == 'r';
    made_up.mapping.is_writable = permissions[1] == 'w';
    made_up.mapping.is_shared = permissions[3] == 's';
    made_up.mapping.path = path;
    made_up.rss_bytes = rss_bytes;
    return made_up;
}

}  // namespace

TEST_CASE("what a program takes at first is no growth", "[growth]") {
    const SeriesTrend trend =
        trend_of(120, [](uint64_t second) { return 50 * mib + std::min<uint64_t>(second, 25) * mib; });
    CHECK(trend.window_ns == 90 * second_ns);
    CHECK(trend.pattern == SeriesPattern::flat);
    REQUIRE(trend.slope_bytes_per_second);
    CHECK(*trend.slope_bytes_per_second == Approx(0).margin(1e-6));
}

TEST_CASE("what goes on grows, with its slope", "[growth]") {
    const SeriesTrend trend = trend_of(120, [](uint64_t second) { return 50 * mib + second * 200'000; });
    CHECK(trend.pattern == SeriesPattern::growing);
    CHECK(*trend.slope_bytes_per_second == Approx(200'000));
}

TEST_CASE("a cache that fills is a step, and what is given back shrinks", "[growth]") {
    CHECK(trend_of(120, [](uint64_t second) { return (second < 50 ? 50 : 90) * mib; }).pattern == SeriesPattern::step);
    CHECK(trend_of(120, [](uint64_t second) { return (second < 100 ? 50 : 90) * mib; }).pattern == SeriesPattern::step);
    CHECK(trend_of(120, [](uint64_t second) { return (second < 100 ? 50 : 20) * mib; }).pattern ==
          SeriesPattern::shrinking);
}

TEST_CASE("a short series has a slope at most", "[growth]") {
    CHECK(!trend_of(2, [](uint64_t second) { return second * mib; }).slope_bytes_per_second);
    const SeriesTrend trend = trend_of(30, [](uint64_t second) { return second * mib; });
    CHECK(trend.window_ns == 20 * second_ns);
    CHECK(*trend.slope_bytes_per_second == Approx(mib));
    CHECK(trend.pattern == SeriesPattern::unknown);
    CHECK(!GrowthSeries().trend().slope_bytes_per_second);
    CHECK(GrowthSeries().growth_bytes() == 0);
}

TEST_CASE("a long series is thinned out and keeps its ends", "[growth]") {
    GrowthSeries series;
    for (uint64_t second = 0; second < 20'000; ++second)
        series.add(second * second_ns, second * 1000);
    CHECK(series.growth_bytes() == 19'999'000);
    CHECK(*series.trend().slope_bytes_per_second == Approx(1000));
    CHECK(series.trend().pattern == SeriesPattern::growing);
}

TEST_CASE("mappings are told apart by what they are for", "[growth]") {
    const std::vector<ResidentMapping> mappings = {
        mapping(0x1000, 0x3000, "r-xp", "/bin/x", 0x1000),
        mapping(0x10000, 0x30000, "rw-p", "[heap]", 0x10000),
        mapping(0x4000000, 0x4030000, "rw-p", "", 0x8000),  // an arena of 0x20000 and something else
        mapping(0x5000000, 0x5001000, "---p", "", 0),
        mapping(0x5001000, 0x5100000, "rw-p", "", 0x3000),  // over a guard
        mapping(0x6000000, 0x6100000, "rw-p", "", 0x2000),  // with a stack pointer
        mapping(0x7000000, 0x7001000, "rw-s", "/dev/zero", 0x1000),
        mapping(0xc000000000, 0xc000400000, "rw-p", "", 0x5000),
        mapping(0x7fff00000000, 0x7fff00010000, "rw-p", "[stack]", 0x4000),
    };
    const std::vector<uint64_t> stack_pointers = {0x60f0000};
    const std::vector<AddressRange> arenas = {{0x4000000, 0x4020000}};
    bool is_asked = false;
    const auto resident = [&](AddressRange range) -> uint64_t {
        is_asked = range.begin == 0x4000000 && range.end == 0x4020000;
        return 0x6000;
    };
    const bool is_go = GENERATE(false, true);
    const MemoryByUse memory =
        split_by_use(mappings, {.stack_pointers = stack_pointers, .arenas = arenas, .is_go = is_go}, resident);
    const auto of = [&](MemoryUse use) { return memory[static_cast<size_t>(use)]; };
    CHECK(is_asked);
    CHECK(of(MemoryUse::files).rss_bytes == 0x1000);
    CHECK(of(MemoryUse::main_heap).rss_bytes == 0x10000);
    CHECK(of(MemoryUse::main_heap).mapped_bytes == 0x20000);
    CHECK(of(MemoryUse::arenas).rss_bytes == 0x6000);
    CHECK(of(MemoryUse::arenas).mapped_bytes == 0x20000);
    CHECK(of(MemoryUse::stacks).rss_bytes == 0x3000 + 0x2000 + 0x4000);
    CHECK(of(MemoryUse::shared).rss_bytes == 0x1000);
    CHECK(of(MemoryUse::gc_heap).rss_bytes == (is_go ? 0x5000 : 0));
    CHECK(of(MemoryUse::anonymous).rss_bytes == 0x2000 + (is_go ? 0u : 0x5000u));
    uint64_t rss_bytes = 0;
    for (const ResidentMapping& one : mappings)
        rss_bytes += one.rss_bytes;
    CHECK(sum_of(memory).rss_bytes == rss_bytes);
}
