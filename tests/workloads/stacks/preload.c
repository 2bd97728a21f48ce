/* LD_PRELOAD library that marks stacks of a program that nobody here wrote: at every STACKS_EVERY-th malloc that the
 * program calls it allocates one more block, of a unique size, which stays. Prints `ready PID` and waits for a line. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shapes.h"

void* __libc_malloc(size_t size);
void* (*volatile traced_malloc)(size_t size);

enum { MARKS = 100 };

static long every, calls, marks;
static const void* libc_base;

/* In libc a return probe may be pending, which memtrace looks behind and gdb does not. */
static int is_in_libc(const void* address) {
    Dl_info found;
    return dladdr(address, &found) != 0 && found.dli_fbase == libc_base;
}

/* Without a type, so that memtrace does not take it for an allocator's function and what it calls for its inner life.
 */
__asm__(".globl malloc\nmalloc:\n\tjmp stacks_malloc");

__attribute__((visibility("hidden"), used)) void* stacks_malloc(size_t size) {
    if (every != 0 && ++calls % every == 0 && marks < MARKS && !is_in_libc(__builtin_return_address(0))) {
        ++marks;
        STACK_ALLOCATE("malloc", traced_malloc(size_bytes));
    }
    return __libc_malloc(size);
}

__attribute__((constructor)) static void wait_for_go(void) {
    const char* wanted = getenv("STACKS_EVERY");
    unsetenv("LD_PRELOAD");
    traced_malloc = __libc_malloc;
    Dl_info found;
    if (wanted == NULL || dladdr((const void*)(uintptr_t)__libc_malloc, &found) == 0) abort();
    libc_base = found.dli_fbase;
    char text[64];
    const int length = snprintf(text, sizeof text, "ready %d\n", (int)getpid());
    if (write(STDOUT_FILENO, text, (size_t)length) != length) abort();
    for (char byte = 0; byte != '\n';)
        if (read(STDIN_FILENO, &byte, 1) != 1) abort();
    every = atol(wanted);
}
