// Reading of numbers from bytes that may be anything. Uses nothing of the project. A read past the end fails for good:
// it gives 0, and so does every later one, so that a loop over `at_end()` ends.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

namespace memtrace {

/// A position in bytes that it does not own. Little-endian numbers; not thread-safe.
class ByteReader {
  public:
    explicit ByteReader(std::span<const uint8_t> bytes) : rest_(bytes) {}

    bool at_end() const { return rest_.empty(); }
    bool has_failed() const { return has_failed_; }
    /// Where the next byte is; one past the last at the end, nullptr after a failure.
    const uint8_t* position() const { return rest_.data(); }
    std::span<const uint8_t> rest() const { return rest_; }

    template <typename Number>
    Number number() {
        Number value = 0;
        const std::span<const uint8_t> bytes = take(sizeof value);
        if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof value);
        return value;
    }
    uint8_t byte() {
        if (rest_.empty()) return static_cast<uint8_t>(fail());
        const uint8_t value = rest_.front();
        rest_ = rest_.subspan(1);
        return value;
    }
    /// Bits beyond 64 are dropped, as libdw does.
    uint64_t uleb() {
        uint64_t value = 0;
        for (unsigned shift = 0;; shift += 7) {
            const uint8_t part = byte();
            if (shift < 64) value |= static_cast<uint64_t>(part & 0x7f) << shift;
            if ((part & 0x80) == 0) return has_failed_ ? 0 : value;
        }
    }
    int64_t sleb() {
        uint64_t value = 0;
        for (unsigned shift = 0;; shift += 7) {
            const uint8_t part = byte();
            if (shift < 64) value |= static_cast<uint64_t>(part & 0x7f) << shift;
            if ((part & 0x80) != 0) continue;
            if (shift + 7 < 64 && (part & 0x40) != 0) value |= ~uint64_t{0} << (shift + 7);
            return has_failed_ ? 0 : static_cast<int64_t>(value);
        }
    }
    /// The next `size_bytes`; empty, and a failure, when there are fewer.
    std::span<const uint8_t> take(uint64_t size_bytes) {
        if (size_bytes > rest_.size()) {
            fail();
            return {};
        }
        const std::span<const uint8_t> taken = rest_.first(size_bytes);
        rest_ = rest_.subspan(size_bytes);
        return taken;
    }

  private:
    int fail() {
        has_failed_ = true;
        rest_ = {};
        return 0;
    }

    std::span<const uint8_t> rest_;
    bool has_failed_ = false;
};

}  // namespace memtrace
