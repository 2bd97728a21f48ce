// A BPF array map seen as memory, so that it is read without a system call an entry. For this folder only.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/result.hpp"

namespace memtrace {

/// All values of a BPF_F_MMAPABLE array, shared with the kernel side: read fields with load(). Owns the mapping.
template <typename Value>
class MappedArray {
  public:
    static Result<MappedArray> map(int map_fd, uint32_t entries, const char* name) {
        const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        const size_t size_bytes = (entries * sizeof(Value) + page - 1) / page * page;
        void* memory = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, map_fd, 0);
        if (memory == MAP_FAILED) return Error{std::string("cannot map the table ") + name, errno_text(errno)};
        return MappedArray(static_cast<Value*>(memory), entries, size_bytes);
    }
    MappedArray(MappedArray&& other) noexcept
        : values_(std::exchange(other.values_, nullptr)), entries_(other.entries_), size_bytes_(other.size_bytes_) {}
    MappedArray& operator=(MappedArray&&) = delete;
    ~MappedArray() {
        if (values_) munmap(values_, size_bytes_);
    }

    std::span<Value> values() const { return {values_, entries_}; }

  private:
    MappedArray(Value* values, uint32_t entries, size_t size_bytes)
        : values_(values), entries_(entries), size_bytes_(size_bytes) {}

    Value* values_;
    uint32_t entries_;
    size_t size_bytes_;
};

/// One field that the kernel side writes at the same time.
template <typename Field>
Field load(const Field& field) {
    return __atomic_load_n(&field, __ATOMIC_ACQUIRE);
}

}  // namespace memtrace
