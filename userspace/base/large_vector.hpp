// A vector of megabytes that is filled once, read, and thrown away. Uses the standard library and madvise.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

namespace memtrace {

/// Memory in huge pages where the system has them: a page fault for 4 KB takes longer than to fill the page, in a
/// virtual machine many times so. What resize() adds to a vector of numbers is not set to 0, but left as it is.
template <typename Item>
class LargeAllocator {
  public:
    using value_type = Item;

    LargeAllocator() = default;
    template <typename Other>
    LargeAllocator(const LargeAllocator<Other>&) {}

    Item* allocate(size_t count) {
        const size_t size_bytes = (count * sizeof(Item) + page_bytes - 1) / page_bytes * page_bytes;
        if (!is_large(count)) return static_cast<Item*>(::operator new(count * sizeof(Item)));
        void* memory = std::aligned_alloc(page_bytes, size_bytes);
        if (memory == nullptr) throw std::bad_alloc();
        madvise(memory, size_bytes, MADV_HUGEPAGE);
        return static_cast<Item*>(memory);
    }
    void deallocate(Item* memory, size_t count) {
        if (is_large(count))
            std::free(memory);
        else
            ::operator delete(memory);
    }
    template <typename Other>
    void construct(Other* place) {
        ::new (static_cast<void*>(place)) Other;
    }
    template <typename Other, typename... Arguments>
    void construct(Other* place, Arguments&&... arguments) {
        ::new (static_cast<void*>(place)) Other(std::forward<Arguments>(arguments)...);
    }
    friend bool operator==(const LargeAllocator&, const LargeAllocator&) { return true; }

  private:
    static constexpr size_t page_bytes = size_t{2} << 20;
    static bool is_large(size_t count) { return count * sizeof(Item) >= page_bytes / 2; }
};

template <typename Item>
using LargeVector = std::vector<Item, LargeAllocator<Item>>;

}  // namespace memtrace
