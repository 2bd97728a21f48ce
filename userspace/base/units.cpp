#include "base/units.hpp"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <system_error>

namespace memtrace {
namespace {

struct Unit {
    std::string_view name;
    uint64_t factor;
};

constexpr std::array size_units = {
    Unit{"", 1},           Unit{"B", 1},
    Unit{"K", 1ull << 10}, Unit{"KiB", 1ull << 10},
    Unit{"M", 1ull << 20}, Unit{"MiB", 1ull << 20},
    Unit{"G", 1ull << 30}, Unit{"GiB", 1ull << 30},
    Unit{"T", 1ull << 40}, Unit{"TiB", 1ull << 40},
};
constexpr std::array time_units = {
    Unit{"ns", 1},
    Unit{"us", 1'000},
    Unit{"ms", 1'000'000},
    Unit{"s", 1'000'000'000},
    Unit{"m", 60'000'000'000},
    Unit{"h", 3'600'000'000'000},
};

bool equals_ignoring_case(std::string_view left, std::string_view right) {
    if (left.size() != right.size()) return false;
    for (size_t index = 0; index < left.size(); ++index)
        if (std::tolower(static_cast<unsigned char>(left[index])) !=
            std::tolower(static_cast<unsigned char>(right[index])))
            return false;
    return true;
}

/// NUMBER[UNIT] where the whole text is used up and the product fits; no value otherwise.
template <size_t Count>
std::optional<uint64_t> parse_quantity(std::string_view text, const std::array<Unit, Count>& units,
                                       std::optional<uint64_t> bare_factor, bool ignores_case) {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || !std::isfinite(number) || std::signbit(number)) return std::nullopt;
    const std::string_view unit_name(end, static_cast<size_t>(text.data() + text.size() - end));
    std::optional<uint64_t> factor = unit_name.empty() ? bare_factor : std::nullopt;
    for (const Unit& unit : units)
        if (!factor && (unit.name == unit_name || (ignores_case && equals_ignoring_case(unit.name, unit_name))))
            factor = unit.factor;
    if (!factor) return std::nullopt;
    uint64_t whole = 0;
    const auto [whole_end, whole_error] = std::from_chars(text.data(), end, whole);
    uint64_t product = 0;
    if (whole_error == std::errc() && whole_end == end) {
        if (__builtin_mul_overflow(whole, *factor, &product)) return std::nullopt;
        return product;
    }
    const double exact = number * static_cast<double>(*factor);
    if (exact >= 0x1p63) return std::nullopt;
    return static_cast<uint64_t>(std::llround(exact));
}

std::string format_magnitude(uint64_t size_bytes) {
    constexpr std::array<std::string_view, 7> names = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = static_cast<double>(size_bytes);
    size_t unit = 0;
    // 1023.95 would be rounded to "1024.0" of the smaller unit.
    while (value >= 1023.95 && unit + 1 < names.size()) {
        value /= 1024;
        ++unit;
    }
    if (unit == 0) return fmt::format("{} B", size_bytes);
    return fmt::format("{:.1f} {}", value, names[unit]);
}

}  // namespace

Result<uint64_t> parse_size(std::string_view text) {
    if (auto size = parse_quantity(text, size_units, 1, true)) return *size;
    return Error{fmt::format("'{}'", text), "not a size", "write 4096, 64K, 1M or 2GiB", ExitStatus::usage};
}

Result<uint64_t> parse_duration(std::string_view text, uint64_t bare_unit_ns) {
    if (auto duration = parse_quantity(text, time_units, bare_unit_ns, false)) return *duration;
    return Error{fmt::format("'{}'", text), "not a time", "write 500ms, 10s or 5m", ExitStatus::usage};
}

std::string format_size(uint64_t size_bytes) {
    return format_magnitude(size_bytes);
}

std::string format_size_change(int64_t change_bytes) {
    if (change_bytes == 0) return "0 B";
    const uint64_t magnitude =
        change_bytes < 0 ? 0 - static_cast<uint64_t>(change_bytes) : static_cast<uint64_t>(change_bytes);
    return (change_bytes < 0 ? "-" : "+") + format_magnitude(magnitude);
}

std::string format_duration(uint64_t duration_ns) {
    const uint64_t seconds = duration_ns / 1'000'000'000;
    if (duration_ns < 1'000) return fmt::format("{}ns", duration_ns);
    if (duration_ns < 1'000'000) return fmt::format("{}us", duration_ns / 1'000);
    if (seconds < 1) return fmt::format("{}ms", duration_ns / 1'000'000);
    if (seconds < 60) return fmt::format("{}s", seconds);
    if (seconds < 3600) return fmt::format("{}m {}s", seconds / 60, seconds % 60);
    if (seconds < 86400) return fmt::format("{}h {}m", seconds / 3600, seconds / 60 % 60);
    return fmt::format("{}d {}h", seconds / 86400, seconds / 3600 % 24);
}

std::string format_count(uint64_t count) {
    std::string digits = fmt::format("{}", count);
    for (size_t position = digits.size(); position > 3; position -= 3)
        digits.insert(position - 3, ",");
    return digits;
}

}  // namespace memtrace
