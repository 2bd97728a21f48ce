#include <sys/mman.h>

#include "base/fd.hpp"
#include "catch.hpp"
#include "symbols/sha256.hpp"

using namespace memtrace;

TEST_CASE("SHA-256 gives the digests of FIPS 180-4's examples", "[symbols]") {
    CHECK(hex_digits(sha256("abc"), 32) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(hex_digits(sha256(""), 32) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(hex_digits(sha256("abc"), 8) == "ba7816bf8f01cfea");
    CHECK(hex_digits(sha256("abc"), 99).size() == 64);
}

TEST_CASE("a file has the digest of its content, however large", "[symbols]") {
    const Fd file(::memfd_create("digest", MFD_CLOEXEC));
    const std::string content(700'001, 'x');
    REQUIRE(::write(file.get(), content.data(), content.size()) == static_cast<ssize_t>(content.size()));
    CHECK(sha256_of_file(file.get()) == sha256(content));
    CHECK_FALSE(sha256_of_file(-1));
}
