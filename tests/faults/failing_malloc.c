/* The C library's malloc, of which one call fails: the Nth that the program makes from its first constructor on, with
 * MEMTRACE_TEST_FAILS=N in its environment; MEMTRACE_TEST_FAILS=N+ fails all from there on. At the program's end their
 * number is in the file that MEMTRACE_TEST_CALLS names. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* block, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

static atomic_ulong calls;
static unsigned long first; /* 0: none fails; written before there are threads */
static unsigned long last;
static _Bool counts;

__attribute__((constructor(101))) static void begin(void) {
    const char* wish = getenv("MEMTRACE_TEST_FAILS");
    if (wish != NULL) {
        char* end = NULL;
        first = last = strtoul(wish, &end, 10);
        if (*end == '+') last = (unsigned long)-1;
    }
    counts = 1;
}

__attribute__((destructor)) static void tell_calls(void) {
    const char* path = getenv("MEMTRACE_TEST_CALLS");
    if (path == NULL) return;
    char text[32];
    const int length = snprintf(text, sizeof text, "%lu\n", atomic_load(&calls));
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text, (size_t)length) != length) abort();
    close(fd);
}

static int fails(void) {
    if (!counts) return 0;
    const unsigned long call = atomic_fetch_add(&calls, 1) + 1;
    if (first == 0 || call < first || call > last) return 0;
    errno = ENOMEM;
    return 1;
}

void* malloc(size_t size) {
    return fails() ? NULL : __libc_malloc(size);
}

void* calloc(size_t count, size_t size) {
    return fails() ? NULL : __libc_calloc(count, size);
}

void* realloc(void* block, size_t size) {
    return fails() ? NULL : __libc_realloc(block, size);
}

void* memalign(size_t alignment, size_t size) {
    return fails() ? NULL : __libc_memalign(alignment, size);
}

void* aligned_alloc(size_t alignment, size_t size) {
    return memalign(alignment, size);
}

int posix_memalign(void** result, size_t alignment, size_t size) {
    const int saved = errno;
    void* block = memalign(alignment, size);
    errno = saved;
    if (block == NULL) return ENOMEM;
    *result = block;
    return 0;
}
