// Sizes and times as people type and read them. Uses nothing of the project but Result.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace memtrace {

/// Bytes from `64K` (1024), `1M`, `2GiB`, `512`; the error names the text.
Result<uint64_t> parse_size(std::string_view text);
/// Nanoseconds from `500ms`, `10s`, `5m`, `1h`, `20us`; a bare number counts in `bare_unit_ns`.
Result<uint64_t> parse_duration(std::string_view text, uint64_t bare_unit_ns);
/// `1.5 MiB`, `512 B`: at most one decimal, 1024-based.
std::string format_size(uint64_t size_bytes);
/// As format_size with a sign: `+1.5 MiB`, `-512 B`, `0 B`.
std::string format_size_change(int64_t change_bytes);
/// `350ms`, `12s`, `5m 3s`, `2h 10m`, `3d 4h`.
std::string format_duration(uint64_t duration_ns);
/// `1,234,567`.
std::string format_count(uint64_t count);

}  // namespace memtrace
