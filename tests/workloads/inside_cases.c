/* Signal handlers that interrupt malloc and allocate, free or jump away, on one thread and its own stack. */
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "inside_malloc.h"
#include "workload.h"

/* Sizes whose blocks lie ready in the thread's cache: the handler gets them without entering the interrupted arena. */
enum { CACHED_SIZE = 56, CACHED_COUNT = 7 };

static sigjmp_buf before_malloc;
static void* volatile sink;
static void* block_of_the_handler;

CALL_SITE static void* handler_mallocs(void) {
    truth_allocated(truth_site("handler_mallocs"), CACHED_SIZE);
    return malloc(CACHED_SIZE);
}

static void allocate(void) {
    block_of_the_handler = handler_mallocs();
}

static void free_block(void) {
    free(block_of_the_handler);
    truth_freed(truth_site("handler_mallocs"), CACHED_SIZE);
}

static void allocate_and_free(void) {
    allocate();
    free_block();
}

CALL_SITE static void duplicate(void) {
    static const char words[] = "forty-nine bytes of text, which the cache holds..";
    sink = strdup(words);
    truth_allocated(truth_site(NULL), sizeof words);
}

static void jump_away(void) {
    siglongjmp(before_malloc, 1);
}

static void allocate_and_jump_away(void) {
    allocate();
    siglongjmp(before_malloc, 1);
}

static void* interrupted(void (*action)(void)) {
    void* block = inside_malloc(action);
    truth_allocated(truth_site("inside_malloc"), INSIDE_MALLOC_SIZE);
    return block;
}

static void handler_allocates(void) {
    for (int i = 0; i < 3; ++i)
        sink = interrupted(allocate);
}

static void handler_frees(void) {
    allocate();
    sink = interrupted(free_block);
}

static void handler_allocates_and_frees(void) {
    for (int i = 0; i < 10; ++i) {
        free(interrupted(allocate_and_free));
        truth_freed(truth_site("inside_malloc"), INSIDE_MALLOC_SIZE);
    }
}

static void handler_calls_strdup(void) {
    sink = interrupted(duplicate);
}

CALL_SITE static void* mallocs_after_the_jump(void) {
    truth_allocated(truth_site("mallocs_after_the_jump"), 200);
    return malloc(200);
}

static void leave_malloc(void (*action)(void)) {
    for (volatile int i = 0; i < 100; ++i) {
        if (sigsetjmp(before_malloc, 1) == 0) {
            sink = inside_malloc(action);
            workload_require(0, "a jump out of malloc");
        }
        truth_abandoned(1);
        sink = mallocs_after_the_jump();
        if (action == allocate_and_jump_away) free_block();
    }
}

static void handler_jumps_out_of_malloc(void) {
    leave_malloc(jump_away);
}

static void handler_allocates_and_jumps_out_of_malloc(void) {
    leave_malloc(allocate_and_jump_away);
}

/* The alternate stack lies in the program's data: below the thread's own stack. */
static char alternate_stack[65536];

static void use_alternate_stack(void) {
    const stack_t stack = {.ss_sp = alternate_stack, .ss_size = sizeof alternate_stack};
    workload_require(sigaltstack(&stack, NULL) == 0, "an alternate stack");
}

static void handler_on_its_own_stack(void) {
    use_alternate_stack();
    handler_allocates();
    handler_frees();
    handler_calls_strdup();
    handler_jumps_out_of_malloc();
    handler_allocates_and_jumps_out_of_malloc();
}

void workload_prepare(void) {
    void* cached[CACHED_COUNT];
    for (int i = 0; i < CACHED_COUNT; ++i)
        cached[i] = malloc(CACHED_SIZE);
    for (int i = 0; i < CACHED_COUNT; ++i)
        free(cached[i]);
    inside_malloc_prepare();
}

const struct workload_case workload_cases[] = {
    {"handler_allocates", handler_allocates},
    {"handler_frees", handler_frees},
    {"handler_allocates_and_frees", handler_allocates_and_frees},
    {"handler_calls_strdup", handler_calls_strdup},
    {"handler_jumps_out_of_malloc", handler_jumps_out_of_malloc},
    {"handler_allocates_and_jumps_out_of_malloc", handler_allocates_and_jumps_out_of_malloc},
    {"handler_on_its_own_stack", handler_on_its_own_stack},
    {NULL, NULL},
};
