// Stacks of the shapes that only C++ makes; shapes.c runs them.
#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "shapes.h"

#ifdef __cpp_impl_coroutine
#include <coroutine>
#endif

namespace {

STACK_NOINLINE void calls_operator_new() {
    STACK_ALLOCATE("operator new", ::operator new(size_bytes));
    STACK_ALLOCATE("operator new[]", new char[size_bytes]);
    STACK_ALLOCATE("operator new, aligned", ::operator new (size_bytes, std::align_val_t{64}));
    STACK_ALLOCATE("operator new, nothrow", ::operator new(size_bytes, std::nothrow));
}

struct Shape {
    Shape() = default;
    Shape(const Shape&) = delete;
    virtual ~Shape() = default;
    virtual void allocate(int depth) = 0;
};

struct Round : Shape {
    void allocate(int depth) override;
};

struct Square : Shape {
    void allocate(int depth) override;
};

STACK_NOINLINE void visit(Shape& shape, int depth) {
    shape.allocate(depth);
    STACK_KEEP_FRAME();
}

void Round::allocate(int depth) {
    Square square;
    if (depth > 0) return visit(square, depth - 1);
    STACK_ALLOCATE("virtual function", ::operator new(size_bytes));
}

void Square::allocate(int depth) {
    Round round;
    if (depth > 0) return visit(round, depth - 1);
    STACK_ALLOCATE("virtual function", ::operator new(size_bytes));
}

STACK_NOINLINE void calls_through_function_objects() {
    const std::function<void(int)> inner = [](int depth) {
        if (depth >= 0) STACK_ALLOCATE("std::function", ::operator new(size_bytes));
    };
    const std::function<void(int)> outer = [&inner](int depth) {
        alignas(64) std::array<char, 128> room;
        asm volatile("" ::"r"(room.data()) : "memory");
        inner(depth);
        STACK_KEEP_FRAME();
    };
    outer(1);
}

template <int depth>
STACK_NOINLINE void descends() {
    if constexpr (depth == 0)
        STACK_ALLOCATE("templates", ::operator new(size_bytes));
    else
        descends<depth - 1>();
    STACK_KEEP_FRAME();
}

struct Allocates {
    const char* shape;
    Allocates(const char* name) : shape(name) {}
    Allocates(const Allocates&) = delete;
    STACK_NOINLINE ~Allocates() { STACK_ALLOCATE(shape, ::operator new(size_bytes)); }
};

STACK_NOINLINE void throws(int depth) {
    const Allocates first("destructor during unwinding");
    if (depth == 0) throw depth;
    throws(depth - 1);
    STACK_KEEP_FRAME();
}

STACK_NOINLINE void catches() {
    try {
        throws(2);
    } catch (int) {
        STACK_ALLOCATE("catch", ::operator new(size_bytes));
        try {
            throw;
        } catch (...) {
            STACK_ALLOCATE("catch of what is thrown again", malloc(size_bytes));
        }
    }
}

STACK_NOINLINE void calls_the_library_back() {
    std::array<int, 40> numbers{};
    for (size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = static_cast<int>(i * 7919 % 41);
    int times = 0;
    std::sort(numbers.begin(), numbers.end(), [&](int left, int right) {
        if (++times == 50) STACK_ALLOCATE("std::sort", ::operator new(size_bytes));
        return left < right;
    });
    std::once_flag once;
    std::call_once(once, [] { STACK_ALLOCATE("std::call_once", ::operator new(size_bytes)); });
    std::thread([] { STACK_ALLOCATE("std::thread", ::operator new(size_bytes)); }).join();
}

#ifdef __cpp_impl_coroutine
struct Task {
    struct promise_type {
        std::coroutine_handle<> awaiting = std::noop_coroutine();
        Task get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_always initial_suspend() noexcept { return {}; }
        auto final_suspend() noexcept {
            struct Resume {
                bool await_ready() noexcept { return false; }
                std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> ended) noexcept {
                    return ended.promise().awaiting;
                }
                void await_resume() noexcept {}
            };
            return Resume{};
        }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }
    };
    std::coroutine_handle<promise_type> handle;

    bool await_ready() { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) {
        handle.promise().awaiting = awaiting;
        return handle;
    }
    void await_resume() {}
};

std::coroutine_handle<> suspended;

struct Suspend {
    bool await_ready() { return false; }
    void await_suspend(std::coroutine_handle<> handle) { suspended = handle; }
    void await_resume() {}
};

Task inner_coroutine() {
    STACK_ALLOCATE("coroutine that another one awaits", ::operator new(size_bytes));
    co_await Suspend{};
    STACK_ALLOCATE("coroutine that is resumed by others", malloc(size_bytes));
}

Task outer_coroutine() {
    STACK_ALLOCATE("coroutine", ::operator new(size_bytes));
    Task inner = inner_coroutine();
    co_await inner;
    STACK_ALLOCATE("coroutine that goes on", ::operator new(size_bytes));
    inner.handle.destroy();
}

STACK_NOINLINE void resumes_coroutines() {
    const Task task = outer_coroutine();
    task.handle.resume();
    suspended.resume();
    task.handle.destroy();
}
#else
void resumes_coroutines() {}
#endif

}  // namespace

void stack_shapes_of_cxx() {
    calls_operator_new();
    Round round;
    visit(round, 5);
    calls_through_function_objects();
    descends<12>();
    catches();
    calls_the_library_back();
    resumes_coroutines();
}
