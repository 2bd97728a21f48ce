#include "bpf/own_functions.hpp"

#include <cerrno>
#include <new>

using memtrace::test::Act;

// A function of its own, called as the ABI says, whatever the optimizer could know of it.
#define OWN_FUNCTION __attribute__((noipa))

namespace {

/// Keeps the own function's frame on the stack while `act` runs: its call is no jump.
template <typename Result>
Result returned(Result result) {
    asm volatile("" ::: "memory");
    return result;
}

}  // namespace

OWN_FUNCTION void* own_malloc(size_t, Act act) {
    return returned(act());
}

OWN_FUNCTION void* own_memalign(size_t, size_t, Act act) {
    return returned(act());
}

OWN_FUNCTION void* own_calloc(size_t, size_t, Act act) {
    return returned(act());
}

OWN_FUNCTION void* own_realloc(void*, size_t, Act act) {
    return returned(act());
}

asm(".text\n"
    ".globl own_reallocarray\n"
    ".type own_reallocarray, @function\n"
    "own_reallocarray:\n"
    "  nop\n"
    "  imul %rdx, %rsi\n"
    "  mov %rcx, %rdx\n"
    "  mov %r8, %rcx\n"
    "  jmp own_realloc\n"
    ".size own_reallocarray, .-own_reallocarray\n");

OWN_FUNCTION void own_free(void*, Act act) {
    returned(act());
}

OWN_FUNCTION int own_posix_memalign(void** out, size_t, size_t, Act act) {
    void* const block = returned(act());
    if (!block) return ENOMEM;
    *out = block;
    return 0;
}

OWN_FUNCTION void* own_new(size_t size_bytes, Act act, Act handler) {
    while (true) {
        if (void* const block = own_malloc(size_bytes, act)) return returned(block);
        if (!handler()) throw std::bad_alloc();
    }
}

OWN_FUNCTION void* own_new_array(size_t size_bytes, Act act, Act handler) {
    return returned(own_new(size_bytes, act, handler));
}

OWN_FUNCTION void* own_mmap(void*, size_t, int, int, int, long, Act act) {
    return returned(act());
}

OWN_FUNCTION int own_munmap(void*, size_t, int result) {
    return returned(result);
}

OWN_FUNCTION void* own_mremap(void*, size_t, size_t, int, void*, Act act) {
    return returned(act());
}

OWN_FUNCTION void* own_pool_get(size_t, Act act) {
    return returned(act());
}

OWN_FUNCTION void own_pool_put(void*, Act act) {
    returned(act());
}

OWN_FUNCTION size_t own_pool_resize(void*, size_t, Act act) {
    return reinterpret_cast<size_t>(returned(act()));
}

asm(".text\n"
    ".globl own_pool_get_by_jump\n"
    ".type own_pool_get_by_jump, @function\n"
    "own_pool_get_by_jump:\n"
    "  nop\n"
    "  jmp own_pool_get\n"
    ".size own_pool_get_by_jump, .-own_pool_get_by_jump\n"
    ".globl own_pool_grow\n"
    ".type own_pool_grow, @function\n"
    "own_pool_grow:\n"
    "  nop\n"
    "  jmp own_realloc\n"
    ".size own_pool_grow, .-own_pool_grow\n"
    ".globl own_pool_put_by_jump\n"
    ".type own_pool_put_by_jump, @function\n"
    "own_pool_put_by_jump:\n"
    "  nop\n"
    "  jmp own_free\n"
    ".size own_pool_put_by_jump, .-own_pool_put_by_jump\n"
    ".globl own_pool_get_anywhere\n"
    ".type own_pool_get_anywhere, @function\n"
    "own_pool_get_anywhere:\n"
    "  nop\n"
    "  jmp *%rcx\n"
    ".size own_pool_get_anywhere, .-own_pool_get_anywhere\n");
