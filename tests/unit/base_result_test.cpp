#include "base/result.hpp"
#include "catch.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "base/fd.hpp"

using namespace memtrace;

namespace {

bool is_open(int fd) {
    return ::fcntl(fd, F_GETFD) >= 0;
}

Fd open_null() {
    return Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

}  // namespace

TEST_CASE("a result holds a value or the error that prevented it", "[base]") {
    Result<int> good = 7;
    REQUIRE(good);
    CHECK(good.value() == 7);
    CHECK(*good == 7);
    Result<int> bad = Error{"what", "why", "hint", ExitStatus::usage};
    REQUIRE_FALSE(bad);
    CHECK(bad.error().what == "what");
    CHECK(bad.error().why == "why");
    CHECK(bad.error().hint == "hint");
    CHECK(bad.error().status == ExitStatus::usage);
    CHECK(Result<int>(Error{"a", "b"}).error().status == ExitStatus::failure);
}

TEST_CASE("a result gives up what it owns once", "[base]") {
    Result<std::unique_ptr<int>> owner = std::make_unique<int>(3);
    REQUIRE(owner);
    const std::unique_ptr<int> taken = std::move(owner).value();
    CHECK(*taken == 3);
    Result<int> bad = Error{"what", "why"};
    const Error error = std::move(bad).error();
    CHECK(error.why == "why");
}

TEST_CASE("a result without a value is success or an error", "[base]") {
    Result<void> good;
    CHECK(good);
    Result<void> bad = Error{"what", "why"};
    REQUIRE_FALSE(bad);
    CHECK(bad.error().what == "what");
    CHECK(std::move(bad).error().why == "why");
}

TEST_CASE("errno values have texts", "[base]") {
    CHECK(errno_text(ENOENT) == "No such file or directory");
    CHECK(errno_text(EPERM) != errno_text(ENOENT));
}

TEST_CASE("a descriptor is closed by its owner and by nobody else", "[base]") {
    int number = -1;
    {
        Fd fd = open_null();
        number = fd.get();
        REQUIRE(fd);
        REQUIRE(is_open(number));
        Fd moved = std::move(fd);
        CHECK(moved.get() == number);
        CHECK(fd.get() == -1);  // NOLINT(bugprone-use-after-move): moved from is "none"
        CHECK(is_open(number));
    }
    CHECK_FALSE(is_open(number));
}

TEST_CASE("a descriptor that is replaced, reset or released ends as it should", "[base]") {
    Fd fd = open_null();
    const int first = fd.get();
    fd = open_null();
    CHECK_FALSE(is_open(first));
    const int second = fd.get();
    Fd& itself = fd;
    fd = std::move(itself);
    CHECK(is_open(second));
    const int released = fd.release();
    CHECK_FALSE(fd);
    CHECK(is_open(released));
    Fd again(released);
    again.reset();
    CHECK_FALSE(is_open(released));
    CHECK_FALSE(Fd());
}
