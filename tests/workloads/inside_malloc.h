/* Code that runs in the middle of malloc, every time and at the same place: a seccomp filter answers the mmap that
 * glibc's malloc makes for a block of INSIDE_MALLOC_SIZE with SIGSYS, and the handler does what the case wants done. */
#pragma once

#include <stddef.h>

enum { INSIDE_MALLOC_SIZE = 3 << 20 };

/* Installs filter and handler for all threads started later. The handler runs on the alternate stack of a thread that
 * has one. */
void inside_malloc_prepare(void);
/* malloc(INSIDE_MALLOC_SIZE), with `action` called from the handler. If it returns, the mapping is made and malloc
 * succeeds. Not for two threads at a time. */
void* inside_malloc(void (*action)(void));
