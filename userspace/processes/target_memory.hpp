// The memory of a process, read from outside. Uses base only. What is read was written by others: a length or a link in
// it bounds nothing.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace memtrace {

/// Stays with the address space that the process had when it was opened: after an exec or the process's end nothing can
/// be read. Thread-safe.
class TargetMemory {
  public:
    /// Needs the rights of ptrace(2); stops nothing. Errors: no_such_target, not_privileged.
    static Result<TargetMemory> open(pid_t pid);

    /// Bytes from `address` up that could be read: fewer than asked for where a page is not there.
    size_t read(uint64_t address, std::span<std::byte> to) const;

    /// One value, none where it cannot be read whole.
    template <typename Value>
    std::optional<Value> read_value(uint64_t address) const {
        static_assert(std::is_trivially_copyable_v<Value>);
        Value value;
        if (read(address, std::as_writable_bytes(std::span(&value, 1))) != sizeof value) return std::nullopt;
        return value;
    }

  private:
    explicit TargetMemory(Fd fd) : fd_(std::move(fd)) {}

    Fd fd_;
};

}  // namespace memtrace
