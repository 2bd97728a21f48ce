#include "symbols/sha256.hpp"

#include <sha2.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

namespace memtrace {
namespace {

class Hasher {
  public:
    Hasher() { ::SHA256Init(&context_); }
    void add(const void* bytes, size_t size) { ::SHA256Update(&context_, static_cast<const uint8_t*>(bytes), size); }
    Sha256Digest digest() {
        Sha256Digest digest;
        ::SHA256Final(digest.data(), &context_);
        return digest;
    }

  private:
    SHA2_CTX context_;
};

}  // namespace

Sha256Digest sha256(std::string_view bytes) {
    Hasher hasher;
    hasher.add(bytes.data(), bytes.size());
    return hasher.digest();
}

std::optional<Sha256Digest> sha256_of_file(int fd) {
    Hasher hasher;
    std::vector<char> chunk(1 << 18);
    off_t offset = 0;
    for (;;) {
        const ssize_t got = ::pread(fd, chunk.data(), chunk.size(), offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return std::nullopt;
        if (got == 0) return hasher.digest();
        hasher.add(chunk.data(), static_cast<size_t>(got));
        offset += got;
    }
}

std::string hex_digits(const Sha256Digest& digest, size_t byte_count) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    for (size_t i = 0; i < byte_count && i < digest.size(); ++i) {
        text += digits[digest[i] >> 4];
        text += digits[digest[i] & 15];
    }
    return text;
}

}  // namespace memtrace
