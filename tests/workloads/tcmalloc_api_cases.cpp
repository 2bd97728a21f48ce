// tcmalloc's own functions (gperftools/tcmalloc.h), each once or more.
#include <gperftools/tcmalloc.h>
#include <cerrno>
#include <cstdlib>
#include <new>

#include "exceptions.hpp"
#include "workload.h"

namespace {

volatile size_t too_large = size_t{1} << 62;
constexpr auto alignment = std::align_val_t{64};
void* volatile sink;

void* noted(void* block, const char* site, size_t size) {
    if (block != nullptr) truth_allocated(truth_site(site), size);
    sink = block;
    return block;
}

}  // namespace

extern "C" {

// SITE(calls_tc_malloc, tc_malloc(size)) defines the call site `calls_tc_malloc`.
#define SITE(name, call)                 \
    CALL_SITE void* name(size_t size) {  \
        return noted(call, #name, size); \
    }

SITE(calls_malloc, malloc(size))
SITE(calls_tc_malloc, tc_malloc(size))
SITE(calls_tc_malloc_skip_new_handler, tc_malloc_skip_new_handler(size))
SITE(calls_tc_calloc, tc_calloc(1, size))
SITE(calls_tc_memalign, tc_memalign(64, size))
SITE(calls_tc_valloc, tc_valloc(size))
SITE(calls_tc_pvalloc, tc_pvalloc(size))
SITE(calls_tc_new, tc_new(size))
SITE(calls_tc_newarray, tc_newarray(size))
SITE(calls_tc_new_nothrow, tc_new_nothrow(size, std::nothrow))
SITE(calls_tc_newarray_nothrow, tc_newarray_nothrow(size, std::nothrow))
SITE(calls_tc_new_aligned, tc_new_aligned(size, alignment))
SITE(calls_tc_newarray_aligned, tc_newarray_aligned(size, alignment))
SITE(calls_tc_new_aligned_nothrow, tc_new_aligned_nothrow(size, alignment, std::nothrow))
SITE(calls_tc_newarray_aligned_nothrow, tc_newarray_aligned_nothrow(size, alignment, std::nothrow))

CALL_SITE void* calls_tc_realloc(void* old, const char* old_site, size_t old_size, size_t size) {
    void* block = noted(tc_realloc(old, size), "calls_tc_realloc", size);
    if (block != nullptr && old != nullptr) truth_freed(truth_site(old_site), old_size);
    return block;
}

CALL_SITE void* calls_tc_posix_memalign(size_t size, int expected) {
    void* block = nullptr;
    workload_require(tc_posix_memalign(&block, 64, size) == expected, "the status of tc_posix_memalign");
    return noted(expected == 0 ? block : nullptr, "calls_tc_posix_memalign", size);
}
}

namespace {

void plain_forms_live_and_fail() {
    calls_tc_malloc(100);
    calls_tc_malloc_skip_new_handler(101);
    calls_tc_calloc(102);
    calls_tc_memalign(103);
    calls_tc_valloc(104);
    calls_tc_pvalloc(105);
    calls_tc_posix_memalign(106, 0);
    calls_tc_posix_memalign(too_large, ENOMEM);
    workload_require(calls_tc_malloc(too_large) == nullptr, "a tc_malloc that fails");
    workload_require(calls_tc_calloc(too_large) == nullptr, "a tc_calloc that fails");
    workload_require(calls_tc_memalign(too_large) == nullptr, "a tc_memalign that fails");
}

void every_free_frees() {
    tc_free(calls_tc_malloc(110));
    truth_freed(truth_site("calls_tc_malloc"), 110);
    tc_free_sized(calls_tc_malloc(111), 111);
    truth_freed(truth_site("calls_tc_malloc"), 111);
    tc_cfree(calls_tc_malloc(112));
    truth_freed(truth_site("calls_tc_malloc"), 112);
    free(calls_tc_malloc(113));
    truth_freed(truth_site("calls_tc_malloc"), 113);
    tc_free(calls_malloc(114));
    truth_freed(truth_site("calls_malloc"), 114);
    tc_free(nullptr);
}

void tc_realloc_moves_and_fails() {
    void* block = calls_tc_realloc(calls_tc_malloc(120), "calls_tc_malloc", 120, 12000);
    block = calls_tc_realloc(block, "calls_tc_realloc", 12000, 121);
    workload_require(calls_tc_realloc(block, "calls_tc_realloc", 121, too_large) == nullptr, "a tc_realloc that fails");
    calls_tc_realloc(nullptr, nullptr, 0, 122);
}

void new_forms_live_and_are_deleted() {
    calls_tc_new(130);
    calls_tc_newarray(131);
    tc_delete(calls_tc_new(132));
    tc_delete_sized(calls_tc_new(133), 133);
    truth_freed(truth_site("calls_tc_new"), 132);
    truth_freed(truth_site("calls_tc_new"), 133);
    tc_deletearray(calls_tc_newarray(134));
    tc_deletearray_sized(calls_tc_newarray(135), 135);
    truth_freed(truth_site("calls_tc_newarray"), 134);
    truth_freed(truth_site("calls_tc_newarray"), 135);
    calls_tc_new_nothrow(136);
    tc_delete_nothrow(calls_tc_new_nothrow(137), std::nothrow);
    truth_freed(truth_site("calls_tc_new_nothrow"), 137);
    tc_deletearray_nothrow(calls_tc_newarray_nothrow(138), std::nothrow);
    truth_freed(truth_site("calls_tc_newarray_nothrow"), 138);
}

void aligned_new_forms_live_and_are_deleted() {
    calls_tc_new_aligned(140);
    tc_delete_aligned(calls_tc_new_aligned(141), alignment);
    tc_delete_sized_aligned(calls_tc_new_aligned(142), 142, alignment);
    truth_freed(truth_site("calls_tc_new_aligned"), 141);
    truth_freed(truth_site("calls_tc_new_aligned"), 142);
    tc_deletearray_aligned(calls_tc_newarray_aligned(143), alignment);
    tc_deletearray_sized_aligned(calls_tc_newarray_aligned(144), 144, alignment);
    truth_freed(truth_site("calls_tc_newarray_aligned"), 143);
    truth_freed(truth_site("calls_tc_newarray_aligned"), 144);
    tc_delete_aligned_nothrow(calls_tc_new_aligned_nothrow(145), alignment, std::nothrow);
    truth_freed(truth_site("calls_tc_new_aligned_nothrow"), 145);
    tc_deletearray_aligned_nothrow(calls_tc_newarray_aligned_nothrow(146), alignment, std::nothrow);
    truth_freed(truth_site("calls_tc_newarray_aligned_nothrow"), 146);
}

void new_forms_fail() {
    workload_require(calls_tc_new_nothrow(too_large) == nullptr, "a tc_new_nothrow that fails");
    try {
        calls_tc_new(too_large);
        workload_require(0, "a tc_new that throws");
    } catch (const std::bad_alloc&) {
    }
    note_exception_thrown_and_caught(1);
}

}  // namespace

extern "C" {

void workload_prepare() {
    throw_the_first_exception();
    tc_free(tc_malloc(10));
}

const workload_case workload_cases[] = {
    {"plain_forms_live_and_fail", plain_forms_live_and_fail},
    {"every_free_frees", every_free_frees},
    {"tc_realloc_moves_and_fails", tc_realloc_moves_and_fails},
    {"new_forms_live_and_are_deleted", new_forms_live_and_are_deleted},
    {"aligned_new_forms_live_and_are_deleted", aligned_new_forms_live_and_are_deleted},
    {"new_forms_fail", new_forms_fail},
    {nullptr, nullptr},
};
}
