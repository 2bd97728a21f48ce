// A second stack of one thread, below or above others in memory. For the tests of this folder.
#pragma once

#include <ucontext.h>

#include <cstddef>

namespace memtrace::test {

/// Runs a function on the stack that it is given; resume() goes there, pause() comes back. The body must end, and must
/// throw nothing.
class Fiber {
  public:
    using Body = void (*)(Fiber& fiber);

    /// `data` is for the body. The stack stays the caller's.
    Fiber(void* stack, size_t size_bytes, Body body, void* data = nullptr);
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    void* data() const { return data_; }
    void resume();
    void pause();

  private:
    static void begin(unsigned low, unsigned high);

    ucontext_t context_{};
    ucontext_t resumer_{};
    Body body_;
    void* data_;
};

/// Two stacks with a page between them that nobody can touch, so that each is a mapping of its own.
struct TwoStacks {
    static constexpr size_t size_bytes = 256 << 10;
    void* lower;
    void* upper;
};
/// Never given back: the target's end does it.
TwoStacks map_two_stacks();

}  // namespace memtrace::test
