// Coroutines with stacks of their own that take turns between and inside allocator calls, some never to be resumed.
#include <ucontext.h>

#include <cstdlib>
#include <new>

#include "workload.h"

namespace {

constexpr int fiber_count = 8;
constexpr size_t stack_size_bytes = 64 << 10;
constexpr size_t too_large = size_t{1} << 46;

alignas(16) char stacks[fiber_count][stack_size_bytes];
ucontext_t scheduler;
ucontext_t fibers[fiber_count];
int current = 0;
void* volatile sink;
size_t volatile huge = too_large;

void yield() {
    swapcontext(&fibers[current], &scheduler);
}

}  // namespace

extern "C" {

CALL_SITE void* fiber_mallocs(size_t size) {
    truth_allocated(truth_site("fiber_mallocs"), size);
    return malloc(size);
}

CALL_SITE void* fiber_news(size_t size) {
    void* block = ::operator new(size, std::nothrow);
    if (block != nullptr) truth_allocated(truth_site("fiber_news"), size);
    return block;
}

CALL_SITE void* scheduler_mallocs(size_t size) {
    truth_allocated(truth_site("scheduler_mallocs"), size);
    return malloc(size);
}
}

namespace {

void free_of_fiber(void* block, size_t size) {
    free(block);
    truth_freed(truth_site("fiber_mallocs"), size);
}

// Holds one block over every yield, as deep as its turn.
CALL_SITE void take_turns(int depth) {
    void* block = fiber_mallocs(100 + static_cast<size_t>(depth));
    yield();
    if (depth < 5) take_turns(depth + 1);
    yield();
    free_of_fiber(block, 100 + static_cast<size_t>(depth));
}

void run_fiber() {
    take_turns(0);
    for (;;)
        yield();
}

void start_fiber(int number, void (*work)()) {
    getcontext(&fibers[number]);
    fibers[number].uc_stack.ss_sp = stacks[number];
    fibers[number].uc_stack.ss_size = stack_size_bytes;
    fibers[number].uc_link = nullptr;
    makecontext(&fibers[number], work, 0);
}

void resume(int number) {
    current = number;
    swapcontext(&scheduler, &fibers[number]);
}

void fibers_take_turns() {
    for (int i = 0; i < fiber_count; ++i)
        start_fiber(i, run_fiber);
    for (int turn = 0; turn < 20; ++turn)
        for (int i = 0; i < fiber_count; ++i) {
            if (i % 2 == 1 && turn > 3) continue;  // abandoned with its blocks
            resume(i);
            sink = scheduler_mallocs(10);
        }
}

bool is_inside_new = false;

void handler_that_yields() {
    is_inside_new = true;
    yield();
    std::set_new_handler(nullptr);
}

void run_failing_new() {
    workload_require(fiber_news(huge) == nullptr, "a new that fails");
    sink = fiber_mallocs(77);
    for (;;)
        yield();
}

// operator new calls its handler, which lets another fiber run and allocate while the call is in flight.
void fiber_yields_inside_new() {
    start_fiber(0, run_failing_new);
    start_fiber(1, run_fiber);
    std::set_new_handler(handler_that_yields);
    resume(0);
    workload_require(is_inside_new, "a yield inside operator new");
    for (int turn = 0; turn < 3; ++turn)
        resume(1);
    sink = scheduler_mallocs(20);
    resume(0);
    constexpr size_t exception_bytes = 128 + sizeof(std::bad_alloc);
    truth_allocated(truth_site("__cxa_allocate_exception"), exception_bytes);
    truth_freed(truth_site("__cxa_allocate_exception"), exception_bytes);
    truth_abandoned(2);
}

// The same, and the fiber inside operator new is never resumed.
void fiber_is_abandoned_inside_new() {
    start_fiber(2, run_failing_new);
    std::set_new_handler(handler_that_yields);
    resume(2);
    std::set_new_handler(nullptr);
    truth_abandoned(2);
    sink = scheduler_mallocs(30);
    start_fiber(2, run_fiber);  // its stack is used again
    for (int turn = 0; turn < 20; ++turn)
        resume(2);
}

}  // namespace

extern "C" {

void workload_prepare() {
    try {
        throw std::bad_alloc();
    } catch (const std::bad_alloc&) {
    }
}

const workload_case workload_cases[] = {
    {"fibers_take_turns", fibers_take_turns},
    {"fiber_yields_inside_new", fiber_yields_inside_new},
    {"fiber_is_abandoned_inside_new", fiber_is_abandoned_inside_new},
    {nullptr, nullptr},
};
}
