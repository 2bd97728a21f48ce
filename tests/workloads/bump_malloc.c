/* A program's own malloc: every block behind the one before, nothing is ever used again. It takes the place of the C
 * library's in the program that it is linked into, or is private to a library that hides it. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HEADER_SIZE = 16, SMALLEST_ALIGNMENT = 16 };
static const size_t arena_size = (size_t)1 << 30;

static char* arena;
static size_t arena_used;

void* memalign(size_t alignment, size_t size);

/* At the first allocation, which comes before the first thread. */
static int make_arena(void) {
    if (arena != NULL) return 1;
    void* mapped = mmap(NULL, arena_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return 0;
    arena = mapped;
    return 1;
}

static void* take(size_t alignment, size_t size) {
    if (size > arena_size || !make_arena()) return NULL;
    const size_t needed = HEADER_SIZE + alignment + size;
    const size_t begin = __atomic_fetch_add(&arena_used, needed, __ATOMIC_RELAXED);
    if (begin + needed > arena_size) return NULL;
    const uintptr_t block = ((uintptr_t)arena + begin + HEADER_SIZE + alignment - 1) & ~(alignment - 1);
    memcpy((char*)block - HEADER_SIZE, &size, sizeof size);
    return (char*)block;
}

static void* take_or_fail(size_t alignment, size_t size) {
    void* block = take(alignment < SMALLEST_ALIGNMENT ? SMALLEST_ALIGNMENT : alignment, size);
    if (block == NULL) errno = ENOMEM;
    return block;
}

void* malloc(size_t size) {
    return take_or_fail(SMALLEST_ALIGNMENT, size);
}

void free(void* block) {
    if (block == NULL) return;
    memset((char*)block - HEADER_SIZE, 0, HEADER_SIZE);
}

void* calloc(size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
    return malloc(bytes);
}

void* realloc(void* old, size_t size) {
    if (old == NULL) return malloc(size);
    size_t old_size;
    memcpy(&old_size, (char*)old - HEADER_SIZE, sizeof old_size);
    void* block = malloc(size);
    if (block == NULL) return NULL;
    memcpy(block, old, old_size < size ? old_size : size);
    free(old);
    return block;
}

void* memalign(size_t alignment, size_t size) {
    return take_or_fail(alignment, size);
}

void* aligned_alloc(size_t alignment, size_t size) {
    return memalign(alignment, size);
}

void* valloc(size_t size) {
    return memalign(4096, size);
}

int posix_memalign(void** result, size_t alignment, size_t size) {
    void* block = memalign(alignment, size);
    if (block == NULL) return ENOMEM;
    *result = block;
    return 0;
}
