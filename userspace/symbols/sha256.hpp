// SHA-256 (FIPS 180-4) of bytes and of files. Uses base and libmd.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace memtrace {

using Sha256Digest = std::array<uint8_t, 32>;

Sha256Digest sha256(std::string_view bytes);
/// Of the whole file behind `fd`, whatever its position; none when it cannot be read.
std::optional<Sha256Digest> sha256_of_file(int fd);
/// Lower-case hex digits of the first `byte_count` bytes.
std::string hex_digits(const Sha256Digest& digest, size_t byte_count);

}  // namespace memtrace
