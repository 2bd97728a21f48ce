// Memory as glibc's malloc has it, made up in this process: an arena, and a heap of chunks.
#pragma once

#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "catch.hpp"
#include "runtimes/glibc_malloc.hpp"

namespace memtrace {

class GlibcImage {
  public:
    explicit GlibcImage(size_t heap_bytes)
        : heap_(static_cast<uint64_t*>(std::aligned_alloc(4096, (heap_bytes + 4095) / 4096 * 4096)), &std::free),
          heap_bytes_(heap_bytes) {
        std::memset(heap_.get(), 0, heap_bytes);
        for (size_t bin = 0; bin < 127; ++bin)
            arena_[14 + 2 * bin] = arena_[15 + 2 * bin] = arena() + 96 + 16 * bin;
        set_arena(2160, arena());
        set_arena(2184, heap_bytes);
        set_arena(2192, heap_bytes);
    }

    uint64_t arena() const { return reinterpret_cast<uint64_t>(arena_.data()); }
    uint64_t begin() const { return reinterpret_cast<uint64_t>(heap_.get()); }
    uint64_t end() const { return begin() + heap_bytes_; }
    void set_arena(size_t offset, uint64_t word) { arena_[offset / 8] = word; }
    std::span<const std::byte> arena_bytes() const { return std::as_bytes(std::span(arena_)); }

    /// The next chunk; its address.
    uint64_t add(uint64_t size_bytes, bool is_in_use, std::vector<uint64_t> block = {}) {
        uint64_t* chunk = heap_.get() + used_bytes_ / 8;
        chunk[1] = size_bytes | (is_last_in_use_ ? 1 : 0);
        std::ranges::copy(block, chunk + 2);
        used_bytes_ += size_bytes;
        is_last_in_use_ = is_in_use;
        chunk[size_bytes / 8] = is_in_use ? 0 : size_bytes;
        return reinterpret_cast<uint64_t>(chunk);
    }
    /// What is left is the top.
    GlibcMalloc finish() {
        const uint64_t top = add(heap_bytes_ - used_bytes_ - 16, true);
        reinterpret_cast<uint64_t*>(top)[1] += 16;
        set_arena(96, top);
        auto memory = TargetMemory::open(getpid());
        REQUIRE(memory);
        return GlibcMalloc(std::move(*memory), arena(), begin(), end());
    }

  private:
    alignas(16) std::array<uint64_t, 276> arena_{};
    std::unique_ptr<uint64_t, void (*)(void*)> heap_;
    size_t heap_bytes_;
    size_t used_bytes_ = 0;
    bool is_last_in_use_ = true;
};

}  // namespace memtrace
