// Functions that look to the probes like an allocator's and do what a test wants: they allocate nothing, because the
// kernel side sees arguments and results only. For the tests of this folder; none of them keeps state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace memtrace::test {

/// What happens inside an own function, and its result: a block, or any callable that returns one. Borrowed for the
/// call.
class Act {
  public:
    Act(void* block) : object_(block), call_([](void* object) { return object; }) {}
    template <typename Callable>
    requires(std::is_invocable_r_v<void*, Callable&> && !std::is_same_v<std::remove_cvref_t<Callable>, Act>)
        Act(Callable&& callable)
        : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))), call_([](void* object) {
              return static_cast<void*>((*static_cast<std::remove_reference_t<Callable>*>(object))());
          }) {}

    void* operator()() const { return call_(object_); }

  private:
    void* object_;
    void* (*call_)(void*);
};

/// The block at `address`, which need not exist.
inline void* block_at(uint64_t address) {
    return reinterpret_cast<void*>(address);
}

}  // namespace memtrace::test

// One for each kind of row; the row's arguments come first. C names, so that they are found in the symbol table.
extern "C" {
void* own_malloc(size_t size_bytes, memtrace::test::Act act);
void* own_memalign(size_t alignment, size_t size_bytes, memtrace::test::Act act);
void* own_calloc(size_t count, size_t size_bytes, memtrace::test::Act act);
void* own_realloc(void* old, size_t size_bytes, memtrace::test::Act act);
/// Ends in a jump to own_realloc, as glibc's does.
void* own_reallocarray(void* old, size_t count, size_t size_bytes, memtrace::test::Act act);
void own_free(void* old, memtrace::test::Act act);
/// Stores what `act` gives at *out; fails with 12 (ENOMEM) and leaves *out alone when it gives nothing.
int own_posix_memalign(void** out, size_t alignment, size_t size_bytes, memtrace::test::Act act);
/// Calls own_malloc until it gives a block; between two attempts `handler`, and throws std::bad_alloc when that gives
/// nothing.
void* own_new(size_t size_bytes, memtrace::test::Act act, memtrace::test::Act handler);
/// Calls own_new.
void* own_new_array(size_t size_bytes, memtrace::test::Act act, memtrace::test::Act handler);
void* own_mmap(void* address, size_t size_bytes, int protection, int flags, int fd, long offset,
               memtrace::test::Act act);
int own_munmap(void* address, size_t size_bytes, int result);
void* own_mremap(void* old, size_t old_size_bytes, size_t size_bytes, int flags, void* address,
                 memtrace::test::Act act);
/// A pool's, which may throw: `act` may.
void* own_pool_get(size_t size_bytes, memtrace::test::Act act);
void own_pool_put(void* block, memtrace::test::Act act);
/// The size that the block at `block` has now: of what `act` gives, the address.
size_t own_pool_resize(void* block, size_t size_bytes, memtrace::test::Act act);
/// Ends in a jump to own_pool_get.
void* own_pool_get_by_jump(size_t size_bytes, memtrace::test::Act act);
/// Ends in a jump to own_realloc, and to own_free.
void* own_pool_grow(void* block, size_t size_bytes, memtrace::test::Act act);
void own_pool_put_by_jump(void* block, memtrace::test::Act act);
/// Ends in a jump to `get`.
void* own_pool_get_anywhere(size_t size_bytes, memtrace::test::Act act, void* (*get)(size_t, memtrace::test::Act));
}

namespace memtrace::test {

/// Has an own_malloc of its own: one call site a `number`.
template <uint64_t number>
__attribute__((noipa)) void malloc_at(uint64_t address) {
    own_malloc(100 + number, block_at(address));
    asm volatile("" ::: "memory");
}

template <uint64_t... numbers>
void malloc_at_each_site(uint64_t address, std::integer_sequence<uint64_t, numbers...>) {
    (malloc_at<numbers>(address + 0x1000 * numbers), ...);
}

}  // namespace memtrace::test
