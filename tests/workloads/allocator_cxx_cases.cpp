// operator new and delete in every form, on whichever allocator defines them: libstdc++'s call malloc, the others'
// often do not. A new that fails throws through the allocator, and the program must live.
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "exceptions.hpp"
#include "threads.h"
#include "workload.h"

// clang declares the sized forms only under -fsized-deallocation.
void operator delete(void* block, std::size_t size) noexcept;
void operator delete[](void* block, std::size_t size) noexcept;
void operator delete[](void* block, std::size_t size, std::align_val_t alignment) noexcept;

namespace {

volatile size_t too_large = size_t{1} << 62;
volatile size_t zero = 0;
void* volatile sink;

constexpr auto alignment = std::align_val_t{64};
constexpr auto page_alignment = std::align_val_t{4096};
constexpr int thread_count = 4;

}  // namespace

extern "C" {

// One call site a form: SITE(calls_new, ::operator new(size)) defines `calls_new`, which notes the block that it got.
#define SITE(name, call)                                                \
    CALL_SITE void* name(size_t size) {                                 \
        void* block = call;                                             \
        if (block != nullptr) truth_allocated(truth_site(#name), size); \
        sink = block;                                                   \
        return block;                                                   \
    }

SITE(calls_new, ::operator new(size))
SITE(calls_new_array, ::operator new[](size))
SITE(calls_new_nothrow, ::operator new(size, std::nothrow))
SITE(calls_new_array_nothrow, ::operator new[](size, std::nothrow))
SITE(calls_new_aligned, ::operator new(size, alignment))
SITE(calls_new_array_aligned, ::operator new[](size, alignment))
SITE(calls_new_page_aligned, ::operator new(size, page_alignment))
SITE(calls_new_aligned_nothrow, ::operator new(size, alignment, std::nothrow))
SITE(calls_new_array_aligned_nothrow, ::operator new[](size, alignment, std::nothrow))
SITE(calls_malloc, malloc(size))
SITE(handler_calls_malloc, malloc(size))
SITE(thread_calls_new, ::operator new(size))
}

namespace {

void new_lives_and_is_deleted() {
    for (size_t i = 0; i < 10; ++i)
        calls_new(200 + i);
    ::operator delete(calls_new(50));
    truth_freed(truth_site("calls_new"), 50);
    ::operator delete (calls_new(51), size_t{51});
    truth_freed(truth_site("calls_new"), 51);
    ::operator delete(nullptr);
}

void new_array_lives_and_is_deleted() {
    for (size_t i = 0; i < 10; ++i)
        calls_new_array(300 + i);
    ::operator delete[](calls_new_array(60));
    truth_freed(truth_site("calls_new_array"), 60);
    ::operator delete[](calls_new_array(61), size_t{61});
    truth_freed(truth_site("calls_new_array"), 61);
}

void new_nothrow_lives_and_is_deleted() {
    calls_new_nothrow(70);
    calls_new_array_nothrow(71);
    ::operator delete(calls_new_nothrow(72), std::nothrow);
    truth_freed(truth_site("calls_new_nothrow"), 72);
    ::operator delete[](calls_new_array_nothrow(73), std::nothrow);
    truth_freed(truth_site("calls_new_array_nothrow"), 73);
}

void new_aligned_lives_and_is_deleted() {
    calls_new_aligned(80);
    calls_new_array_aligned(81);
    calls_new_page_aligned(5000);
    ::operator delete(calls_new_aligned(82), alignment);
    truth_freed(truth_site("calls_new_aligned"), 82);
    ::operator delete (calls_new_aligned(83), size_t{83}, alignment);
    truth_freed(truth_site("calls_new_aligned"), 83);
    ::operator delete[](calls_new_array_aligned(84), size_t{84}, alignment);
    truth_freed(truth_site("calls_new_array_aligned"), 84);
    ::operator delete(calls_new_aligned_nothrow(85), alignment, std::nothrow);
    truth_freed(truth_site("calls_new_aligned_nothrow"), 85);
    ::operator delete[](calls_new_array_aligned_nothrow(86), alignment, std::nothrow);
    truth_freed(truth_site("calls_new_array_aligned_nothrow"), 86);
}

void new_of_zero_bytes_is_a_block() {
    calls_new(zero);
    calls_new_array(zero);
}

void large_new_lives_and_is_deleted() {
    calls_new(9 << 20);
    ::operator delete (calls_new(10 << 20), size_t{10 << 20});
    truth_freed(truth_site("calls_new"), 10 << 20);
}

// What one form allocated another one frees, wherever all of them end in one allocator.
void forms_mix() {
    free(calls_new(140));
    truth_freed(truth_site("calls_new"), 140);
    ::operator delete(calls_malloc(141));
    truth_freed(truth_site("calls_malloc"), 141);
    sink = realloc(calls_new(142), 242);
    truth_freed(truth_site("calls_new"), 142);
    truth_allocated(truth_site(nullptr), 242);
}

// Through many size classes: the allocator's slow paths fill and flush its caches.
void many_small_blocks() {
    constexpr size_t count = 3000;
    static void* blocks[count];
    for (size_t i = 0; i < count; ++i)
        blocks[i] = calls_new(1 + i % 300 * 8);
    for (size_t i = 0; i < count; i += 2) {
        ::operator delete(blocks[i]);
        truth_freed(truth_site("calls_new"), 1 + i % 300 * 8);
    }
}

using Form = void* (*)(size_t);

void throws_out_of(Form form) {
    try {
        form(too_large);
        workload_require(0, "a new that throws");
    } catch (const std::bad_alloc&) {
    }
    note_exception_thrown_and_caught(2);  // operator new[] may call operator new
}

void new_throws() {
    for (int i = 0; i < 100; ++i)
        for (const Form form : {calls_new, calls_new_array, calls_new_aligned, calls_new_array_aligned})
            throws_out_of(form);
    ::operator delete(calls_new(90));
    truth_freed(truth_site("calls_new"), 90);
}

void new_nothrow_fails() {
    for (const Form form : {calls_new_nothrow, calls_new_array_nothrow, calls_new_aligned_nothrow})
        workload_require(form(too_large) == nullptr, "a nothrow new that fails");
}

int handler_calls = 0;

void handler_that_allocates() {
    handler_calls_malloc(111);
    if (++handler_calls == 3) std::set_new_handler(nullptr);
}

void new_handler_allocates() {
    handler_calls = 0;
    std::set_new_handler(handler_that_allocates);
    throws_out_of(calls_new);
    workload_require(handler_calls == 3, "three calls of the handler");
}

void containers_own_blocks() {
    site_truth* elsewhere = truth_site(nullptr);
    auto* numbers = new std::vector<int>;
    truth_allocated(elsewhere, sizeof(std::vector<int>));
    numbers->reserve(1000);
    truth_allocated(elsewhere, 4000);
    {
        std::string text(99, 'x');
        sink = text.data();
        truth_allocated(elsewhere, 100);
    }
    truth_freed(elsewhere, 100);
    sink = numbers;
}

void* left_by_others[thread_count];

void exchange_blocks(int index) {
    for (size_t i = 0; i < 500; ++i) {
        auto* block = static_cast<size_t*>(thread_calls_new(sizeof(size_t) + i));
        *block = sizeof(size_t) + i;
        const size_t slot = (static_cast<size_t>(index) + i) % thread_count;
        auto* other = static_cast<size_t*>(__atomic_exchange_n(&left_by_others[slot], block, __ATOMIC_SEQ_CST));
        if (other == nullptr) continue;
        const size_t size = *other;
        ::operator delete(other, size);
        truth_freed(truth_site("thread_calls_new"), size);
    }
}

void threads_delete_each_others_blocks() {
    threads_run(thread_count, exchange_blocks);
}

}  // namespace

extern "C" {

void workload_prepare() {
    throw_the_first_exception();
    threads_start_without_unwinder(thread_count);
    threads_run(thread_count, [](int) { ::operator delete(::operator new(10)); });
}

const workload_case workload_cases[] = {
    {"new_lives_and_is_deleted", new_lives_and_is_deleted},
    {"new_array_lives_and_is_deleted", new_array_lives_and_is_deleted},
    {"new_nothrow_lives_and_is_deleted", new_nothrow_lives_and_is_deleted},
    {"new_aligned_lives_and_is_deleted", new_aligned_lives_and_is_deleted},
    {"new_of_zero_bytes_is_a_block", new_of_zero_bytes_is_a_block},
    {"large_new_lives_and_is_deleted", large_new_lives_and_is_deleted},
    {"forms_mix", forms_mix},
    {"many_small_blocks", many_small_blocks},
    {"new_throws", new_throws},
    {"new_nothrow_fails", new_nothrow_fails},
    {"new_handler_allocates", new_handler_allocates},
    {"containers_own_blocks", containers_own_blocks},
    {"threads_delete_each_others_blocks", threads_delete_each_others_blocks},
    {nullptr, nullptr},
};
}
