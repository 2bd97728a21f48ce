// Errors as values. Uses nothing of the project. A function that can fail for a reason outside our own code returns
// Result<T>; the reason is already a sentence for the person at the terminal when it is made.
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace memtrace {

/// How memtrace ends; the numbers are part of the contract with users.
enum class ExitStatus : int {
    ok = 0,
    failure = 1,
    usage = 2,
    no_such_target = 3,
    no_allocator = 4,
    kernel_lacks_feature = 69,
    not_privileged = 77,
    interrupted_twice = 130,
};

/// What failed, why, and a way out. Printed as `memtrace: WHAT: WHY` and `hint: WAY`; `hint` may be empty.
struct Error {
    std::string what;
    std::string why;
    std::string hint = {};
    ExitStatus status = ExitStatus::failure;
};

/// A value or the Error that prevented it. `value()` of an error is a bug of the caller and asserts.
template <typename T>
class [[nodiscard]] Result {
  public:
    Result(T value) : content_(std::move(value)) {}
    Result(Error error) : content_(std::move(error)) {}

    explicit operator bool() const { return std::holds_alternative<T>(content_); }
    T& value() & {
        assert(*this);
        return std::get<T>(content_);
    }
    const T& value() const& {
        assert(*this);
        return std::get<T>(content_);
    }
    T&& value() && {
        assert(*this);
        return std::get<T>(std::move(content_));
    }
    const Error& error() const& {
        assert(!*this);
        return std::get<Error>(content_);
    }
    Error&& error() && {
        assert(!*this);
        return std::get<Error>(std::move(content_));
    }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }

  private:
    std::variant<T, Error> content_;
};

/// Success without a value, or an Error.
template <>
class [[nodiscard]] Result<void> {
  public:
    Result() = default;
    Result(Error error) : error_(std::move(error)) {}

    explicit operator bool() const { return !error_; }
    const Error& error() const& {
        assert(error_);
        return *error_;
    }
    Error&& error() && {
        assert(error_);
        return *std::move(error_);
    }

  private:
    std::optional<Error> error_;
};

/// The text of an errno value, thread-safe.
std::string errno_text(int error_number);

}  // namespace memtrace
