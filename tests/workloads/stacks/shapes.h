/* Places at which a test compares the stack that memtrace records with the one that a debugger sees: a block of a size
 * that no other has, and a call of stack_marker from the same frame. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns at once. A debugger stops here: its caller holds `size_bytes`, allocated in `shape`, the name of a case. */
void stack_marker(size_t size_bytes, const char* shape);
/* A size that no block had before, above 1 MB, so that a tracer can leave out all other blocks. */
size_t stack_unique_size(void);

/* The shapes that need C++; not in programs that are C only. */
void stack_shapes_of_cxx(void) __attribute__((weak));

#ifdef __cplusplus
}
#endif

#define STACK_NOINLINE __attribute__((noinline))
/* What follows a call, so that it is not the caller's last act and cannot become a jump. */
#define STACK_KEEP_FRAME() __asm__ volatile("" ::: "memory")

/* `allocation`, an expression that allocates size_bytes and yields a pointer, and the marker from the same frame. */
#define STACK_ALLOCATE(shape, allocation)              \
    do {                                               \
        const size_t size_bytes = stack_unique_size(); \
        void* volatile block = (allocation);           \
        (void)block;                                   \
        stack_marker(size_bytes, shape);               \
        STACK_KEEP_FRAME();                            \
    } while (0)
