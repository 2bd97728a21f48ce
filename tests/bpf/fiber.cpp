#include "bpf/fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace memtrace::test {

Fiber::Fiber(void* stack, size_t size_bytes, Body body, void* data) : body_(body), data_(data) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack;
    context_.uc_stack.ss_size = size_bytes;
    context_.uc_link = &resumer_;
    const auto self = reinterpret_cast<uint64_t>(this);
    makecontext(&context_, reinterpret_cast<void (*)()>(&Fiber::begin), 2, static_cast<unsigned>(self),
                static_cast<unsigned>(self >> 32));
}

void Fiber::begin(unsigned low, unsigned high) {
    auto* fiber = reinterpret_cast<Fiber*>(uint64_t{high} << 32 | low);
    fiber->body_(*fiber);
}

void Fiber::resume() {
    swapcontext(&resumer_, &context_);
}

void Fiber::pause() {
    swapcontext(&context_, &resumer_);
}

TwoStacks map_two_stacks() {
    constexpr size_t guard_bytes = 4096;
    constexpr size_t all_bytes = 2 * TwoStacks::size_bytes + guard_bytes;
    void* const memory = mmap(nullptr, all_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char* const guard = static_cast<char*>(memory) + TwoStacks::size_bytes;
    if (memory == MAP_FAILED || mprotect(guard, guard_bytes, PROT_NONE) != 0) _exit(1);
    return {memory, guard + guard_bytes};
}

}  // namespace memtrace::test
