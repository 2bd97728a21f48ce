// The names that a just-in-time compiler gave to its code, by address. Uses nothing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace memtrace {

/// Code is thrown away and its place used again: what is added later wins where entries overlap. For one thread.
class JitNames {
  public:
    struct Found {
        std::string_view name;  // any bytes; valid until the next add()
        uint64_t start = 0;
    };

    /// [start, start + size_bytes) is `name`. Ignored when it is empty, or when the limits of a process are reached: a
    /// million entries, 128 MB of names.
    void add(uint64_t start, uint64_t size_bytes, std::string_view name);
    /// `start` to 0 when nothing is known there; then `name` is empty.
    Found find(uint64_t address) const;
    bool is_full() const;

  private:
    struct Entry {
        uint64_t start = 0;  // of the code; its entry may begin later, where something newer covers the front
        uint64_t end = 0;
        uint32_t name = 0;
    };
    void make_room(uint64_t start, uint64_t end);

    std::vector<std::string> names_;
    uint64_t name_bytes_ = 0;
    std::map<uint64_t, Entry> entries_;  // by the first address; they do not overlap
};

}  // namespace memtrace
