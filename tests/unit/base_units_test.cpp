#include "base/units.hpp"
#include "catch.hpp"

#include <optional>

using namespace memtrace;

namespace {

constexpr uint64_t second_ns = 1'000'000'000;

std::optional<uint64_t> size_of(std::string_view text) {
    auto size = parse_size(text);
    return size ? std::optional(*size) : std::nullopt;
}

std::optional<uint64_t> duration_of(std::string_view text) {
    auto duration = parse_duration(text, second_ns);
    return duration ? std::optional(*duration) : std::nullopt;
}

}  // namespace

TEST_CASE("sizes are read in powers of 1024 and in any case", "[base]") {
    CHECK(size_of("0") == 0);
    CHECK(size_of("512") == 512);
    CHECK(size_of("512B") == 512);
    CHECK(size_of("64K") == 65536);
    CHECK(size_of("64k") == 65536);
    CHECK(size_of("1M") == 1048576);
    CHECK(size_of("2GiB") == 2147483648);
    CHECK(size_of("1.5K") == 1536);
    CHECK(size_of("1TiB") == 1ull << 40);
}

TEST_CASE("sizes are exact up to the largest that fits and refused beyond", "[base]") {
    CHECK(size_of("18446744073709551615") == UINT64_MAX);
    CHECK(size_of("9007199254740993") == 9007199254740993);  // 2^53 + 1 is no double
    CHECK(size_of("16777215T") == 16777215ull << 40);
    CHECK_FALSE(size_of("18446744073709551616"));
    CHECK_FALSE(size_of("16777216T"));
    CHECK_FALSE(size_of("1e400"));
    CHECK_FALSE(size_of("9999999999.5T"));
}

TEST_CASE("what is no size is refused by name, with a way out", "[base]") {
    for (const char* text :
         {"", "K", "64X", "64 K", " 64K", "64K ", "-1", "-0", "+1", "0x10", "inf", "nan", "1,5K", "64KK"}) {
        INFO(text);
        CHECK_FALSE(size_of(text));
    }
    const auto size = parse_size("lots");
    REQUIRE_FALSE(size);
    CHECK(size.error().what == "'lots'");
    CHECK(size.error().why == "not a size");
    CHECK_FALSE(size.error().hint.empty());
    CHECK(size.error().status == ExitStatus::usage);
}

TEST_CASE("times are read with a unit, and in the caller's without one", "[base]") {
    CHECK(duration_of("500ms") == second_ns / 2);
    CHECK(duration_of("10s") == 10 * second_ns);
    CHECK(duration_of("5m") == 300 * second_ns);
    CHECK(duration_of("1h") == 3600 * second_ns);
    CHECK(duration_of("20us") == 20'000);
    CHECK(duration_of("7ns") == 7);
    CHECK(duration_of("0.5") == second_ns / 2);
    CHECK(duration_of("3") == 3 * second_ns);
    CHECK(parse_duration("3", 1'000'000).value() == 3'000'000);
    for (const char* text : {"", "s", "5M", "5 s", "-1s", "nan", "1d", "6000000000h"}) {
        INFO(text);
        CHECK_FALSE(duration_of(text));
    }
    CHECK(parse_duration("soon", 1).error().why == "not a time");
}

TEST_CASE("sizes are shown with at most one decimal and the largest unit below them", "[base]") {
    CHECK(format_size(0) == "0 B");
    CHECK(format_size(1023) == "1023 B");
    CHECK(format_size(1024) == "1.0 KiB");
    CHECK(format_size(1536) == "1.5 KiB");
    CHECK(format_size(1048575) == "1.0 MiB");  // not 1024.0 KiB
    CHECK(format_size(1ull << 40) == "1.0 TiB");
    CHECK(format_size(UINT64_MAX) == "16.0 EiB");
}

TEST_CASE("changes of size have a sign unless there is none", "[base]") {
    CHECK(format_size_change(0) == "0 B");
    CHECK(format_size_change(512) == "+512 B");
    CHECK(format_size_change(-1536) == "-1.5 KiB");
    CHECK(format_size_change(INT64_MIN) == "-8.0 EiB");
    CHECK(format_size_change(INT64_MAX) == "+8.0 EiB");
}

TEST_CASE("times are shown by their two largest units", "[base]") {
    CHECK(format_duration(0) == "0ns");
    CHECK(format_duration(999) == "999ns");
    CHECK(format_duration(20'000) == "20us");
    CHECK(format_duration(350'000'000) == "350ms");
    CHECK(format_duration(999'999'999) == "999ms");
    CHECK(format_duration(12 * second_ns) == "12s");
    CHECK(format_duration(303 * second_ns) == "5m 3s");
    CHECK(format_duration(7800 * second_ns) == "2h 10m");
    CHECK(format_duration(273'600 * second_ns) == "3d 4h");
}

TEST_CASE("counts are shown in groups of three digits", "[base]") {
    CHECK(format_count(0) == "0");
    CHECK(format_count(999) == "999");
    CHECK(format_count(1000) == "1,000");
    CHECK(format_count(1234567) == "1,234,567");
    CHECK(format_count(UINT64_MAX) == "18,446,744,073,709,551,615");
}
