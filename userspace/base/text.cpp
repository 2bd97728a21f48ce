#include "base/text.hpp"

#include <cstdint>

namespace memtrace {
namespace {

/// Length of the valid UTF-8 sequence at the front of `bytes`, 0 if there is none (RFC 3629, section 4).
size_t utf8_sequence_length(std::string_view bytes) {
    auto byte = [&](size_t index) { return static_cast<uint8_t>(bytes[index]); };
    auto continues = [&](size_t index, uint8_t low = 0x80, uint8_t high = 0xbf) {
        return index < bytes.size() && byte(index) >= low && byte(index) <= high;
    };
    const uint8_t lead = byte(0);
    if (lead < 0x80) return 1;
    if (lead >= 0xc2 && lead <= 0xdf) return continues(1) ? 2 : 0;
    if (lead >= 0xe0 && lead <= 0xef) {
        const uint8_t low = lead == 0xe0 ? 0xa0 : 0x80;
        const uint8_t high = lead == 0xed ? 0x9f : 0xbf;
        return continues(1, low, high) && continues(2) ? 3 : 0;
    }
    if (lead >= 0xf0 && lead <= 0xf4) {
        const uint8_t low = lead == 0xf0 ? 0x90 : 0x80;
        const uint8_t high = lead == 0xf4 ? 0x8f : 0xbf;
        return continues(1, low, high) && continues(2) && continues(3) ? 4 : 0;
    }
    return 0;
}

void append_escaped(std::string& text, uint8_t byte) {
    constexpr char digits[] = "0123456789abcdef";
    text += "\\x";
    text += digits[byte >> 4];
    text += digits[byte & 15];
}

}  // namespace

std::string printable(std::string_view bytes) {
    std::string text;
    text.reserve(bytes.size());
    while (!bytes.empty()) {
        const auto lead = static_cast<uint8_t>(bytes[0]);
        const size_t length = utf8_sequence_length(bytes);
        // C1 controls (U+0080 to U+009F) drive terminals as the C0 ones do.
        const bool is_control =
            lead < 0x20 || lead == 0x7f || (length == 2 && lead == 0xc2 && static_cast<uint8_t>(bytes[1]) < 0xa0);
        if (length == 0 || is_control) {
            append_escaped(text, lead);
            bytes.remove_prefix(1);
            continue;
        }
        text += bytes.substr(0, length);
        bytes.remove_prefix(length);
    }
    return text;
}

}  // namespace memtrace
