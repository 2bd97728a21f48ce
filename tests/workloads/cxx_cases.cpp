// operator new and delete in every form, and every way in which new ends without a block.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "exceptions.hpp"
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

}  // namespace

extern "C" {

CALL_SITE void* calls_new(size_t size) {
    void* block = ::operator new(size);
    truth_allocated(truth_site("calls_new"), size);
    sink = block;
    return block;
}

CALL_SITE void* calls_new_array(size_t size) {
    void* block = ::operator new[](size);
    truth_allocated(truth_site("calls_new_array"), size);
    sink = block;
    return block;
}

CALL_SITE void* calls_new_nothrow(size_t size) {
    void* block = ::operator new(size, std::nothrow);
    if (block) truth_allocated(truth_site("calls_new_nothrow"), size);
    sink = block;
    return block;
}

CALL_SITE void* calls_new_array_nothrow(size_t size) {
    void* block = ::operator new[](size, std::nothrow);
    if (block) truth_allocated(truth_site("calls_new_array_nothrow"), size);
    sink = block;
    return block;
}

CALL_SITE void* calls_new_aligned(size_t size) {
    void* block = ::operator new(size, alignment);
    truth_allocated(truth_site("calls_new_aligned"), size);
    sink = block;
    return block;
}

CALL_SITE void* calls_new_array_aligned(size_t size) {
    void* block = ::operator new[](size, alignment);
    truth_allocated(truth_site("calls_new_array_aligned"), size);
    sink = block;
    return block;
}

CALL_SITE void* handler_calls_malloc(size_t size) {
    void* block = malloc(size);
    truth_allocated(truth_site("handler_calls_malloc"), size);
    sink = block;
    return block;
}
}

namespace leaky {

// Its name in a report is `leaky::Owner::grow(int)`.
struct Owner {
    CALL_SITE void grow(int size) {
        sink = new char[static_cast<size_t>(size)];
        truth_allocated(truth_site("leaky::Owner::grow(int)"), static_cast<size_t>(size));
    }
    // Both frames are reported, fill's as inlined.
    CALL_SITE void refill(int size) {
        fill(size);
        truth_allocated(truth_site("leaky::Owner::fill(int)"), static_cast<size_t>(size));
    }

  private:
    [[gnu::always_inline]] void fill(int size) { sink = new char[static_cast<size_t>(size)]; }
};

}  // namespace leaky

namespace {

// Throws std::bad_alloc out of operator new and catches it.
void new_throws_once() {
    try {
        calls_new(too_large);
        workload_require(0, "a new that throws");
    } catch (const std::bad_alloc&) {
    }
}

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

void new_nothrow_lives_and_fails() {
    calls_new_nothrow(70);
    calls_new_array_nothrow(71);
    ::operator delete(calls_new_nothrow(72), std::nothrow);
    truth_freed(truth_site("calls_new_nothrow"), 72);
    // libstdc++ throws and catches inside.
    workload_require(calls_new_nothrow(too_large) == nullptr, "a nothrow new that fails");
    note_exception_thrown_and_caught(1);
    workload_require(calls_new_array_nothrow(too_large) == nullptr, "a nothrow new[] that fails");
    note_exception_thrown_and_caught(1);
    truth_abandoned(3);  // operator new[] calls operator new: both are left, and so may the outer nothrow forms be
}

void new_aligned_lives_and_is_deleted() {
    calls_new_aligned(80);
    calls_new_array_aligned(81);
    ::operator delete(calls_new_aligned(82), alignment);
    truth_freed(truth_site("calls_new_aligned"), 82);
    ::operator delete[](calls_new_array_aligned(83), size_t{83}, alignment);
    truth_freed(truth_site("calls_new_array_aligned"), 83);
}

void new_of_zero_bytes_is_a_block() {
    calls_new(zero);
    calls_new_array(zero);
}

void new_throws_many_times() {
    for (int i = 0; i < 1000; ++i) {
        new_throws_once();
        note_exception_thrown_and_caught(1);
    }
    ::operator delete(calls_new(90));
    truth_freed(truth_site("calls_new"), 90);
}

void* reserve = nullptr;
int handler_calls = 0;

void handler_that_allocates() {
    handler_calls_malloc(111);
    if (++handler_calls == 3) std::set_new_handler(nullptr);
}

void new_handler_allocates() {
    handler_calls = 0;
    std::set_new_handler(handler_that_allocates);
    new_throws_once();
    note_exception_thrown_and_caught(1);
}

constexpr size_t reserve_bytes = size_t{64} << 20;

// The limit leaves room for the reserve or for the block, not for both: the retry of operator new succeeds.
void handler_that_frees_the_reserve() {
    workload_require(reserve != nullptr, "a reserve that is enough");
    free(reserve);
    truth_freed(truth_site("handler_calls_malloc"), reserve_bytes);
    reserve = nullptr;
}

size_t address_space_bytes() {
    char text[64] = {};
    const int fd = open("/proc/self/statm", O_RDONLY);
    workload_require(read(fd, text, sizeof text - 1) > 0, "the size of the address space");
    close(fd);
    return static_cast<size_t>(strtoull(text, nullptr, 10)) * 4096;
}

void new_handler_frees_its_reserve() {
    rlimit before{};
    getrlimit(RLIMIT_AS, &before);
    const rlimit limit{address_space_bytes() + reserve_bytes + reserve_bytes / 2, before.rlim_max};
    setrlimit(RLIMIT_AS, &limit);
    reserve = handler_calls_malloc(reserve_bytes);
    std::set_new_handler(handler_that_frees_the_reserve);
    void* block = calls_new(reserve_bytes);
    std::set_new_handler(nullptr);
    setrlimit(RLIMIT_AS, &before);
    workload_require(reserve == nullptr, "a call of the handler");
    ::operator delete(block);
    truth_freed(truth_site("calls_new"), reserve_bytes);
}

void handler_that_throws() {
    handler_calls_malloc(112);
    throw std::bad_alloc();
}

void new_handler_throws() {
    std::set_new_handler(handler_that_throws);
    for (int i = 0; i < 20; ++i) {
        new_throws_once();
        note_exception_thrown_and_caught(1);
    }
    std::set_new_handler(nullptr);
    calls_new(91);
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

void a_method_is_demangled() {
    leaky::Owner owner;
    owner.grow(1234);
}

void an_inlined_method_is_a_frame() {
    leaky::Owner owner;
    owner.refill(1234);
}

}  // namespace

extern "C" {

void workload_prepare() {
    throw_the_first_exception();
}

const workload_case workload_cases[] = {
    {"new_lives_and_is_deleted", new_lives_and_is_deleted},
    {"new_array_lives_and_is_deleted", new_array_lives_and_is_deleted},
    {"new_nothrow_lives_and_fails", new_nothrow_lives_and_fails},
    {"new_aligned_lives_and_is_deleted", new_aligned_lives_and_is_deleted},
    {"new_of_zero_bytes_is_a_block", new_of_zero_bytes_is_a_block},
    {"new_throws_many_times", new_throws_many_times},
    {"new_handler_allocates", new_handler_allocates},
    {"new_handler_frees_its_reserve", new_handler_frees_its_reserve},
    {"new_handler_throws", new_handler_throws},
    {"containers_own_blocks", containers_own_blocks},
    {"a_method_is_demangled", a_method_is_demangled},
    {"an_inlined_method_is_a_frame", an_inlined_method_is_a_frame},
    {nullptr, nullptr},
};
}
