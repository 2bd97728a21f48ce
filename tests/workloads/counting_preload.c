/* LD_PRELOAD library that counts every call of the malloc family exactly, to check memtrace on programs that nobody
 * here wrote. A second opinion: it shares no code with memtrace. It counts what malloc was asked for, so operator
 * new(0) is one byte here. Children by fork count for themselves, in no file, or in
 * files of their own where $COUNTING_PRELOAD_CHILDREN is set. */
#define _GNU_SOURCE
#include "counting_preload.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* block);

/* Open addressing with linear probing; address 0 is a free entry. Mapped by system call, so that no allocator function
 * is called for it. */
struct entry {
    uintptr_t address;
    size_t size_bytes;
    uint64_t window;
};
enum { ENTRY_COUNT = 1 << 22 };

static struct entry* entries;
static struct counting_figures own_figures;
static struct counting_figures* figures = &own_figures;
static int lock;

static void acquire(void) {
    while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE)) {
    }
}

static void release(void) {
    __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
}

static void* map(size_t size, int fd) {
    const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
    const long address = syscall(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (address == -1) abort();
    return (void*)address;
}

static size_t home_of(uintptr_t address) {
    return (address >> 4) * 0x9e3779b97f4a7c15ull >> 42;
}

static size_t next_of(size_t index) {
    return (index + 1) % ENTRY_COUNT;
}

static void insert(struct entry new_entry) {
    if (entries == NULL) entries = map(sizeof(struct entry) * ENTRY_COUNT, -1);
    size_t index = home_of(new_entry.address);
    for (size_t probes = 0; probes < ENTRY_COUNT / 2; ++probes, index = next_of(index)) {
        if (entries[index].address != 0) continue;
        entries[index] = new_entry;
        return;
    }
    ++figures->not_counted;
}

/* Closes the gap, so that no search stops at it. */
static void erase(size_t gap) {
    entries[gap].address = 0;
    for (size_t index = next_of(gap); entries[index].address != 0; index = next_of(index)) {
        const size_t home = home_of(entries[index].address);
        const bool stays = gap <= index ? gap < home && home <= index : gap < home || home <= index;
        if (stays) continue;
        entries[gap] = entries[index];
        entries[index].address = 0;
        gap = index;
    }
}

/* Takes the entry of `block` out; its address is 0 when there is none. */
static struct entry take(const void* block) {
    const struct entry none = {0, 0, 0};
    if (entries == NULL) return none;
    for (size_t index = home_of((uintptr_t)block); entries[index].address != 0; index = next_of(index)) {
        if (entries[index].address != (uintptr_t)block) continue;
        const struct entry found = entries[index];
        erase(index);
        return found;
    }
    return none;
}

static void* count_allocated(void* block, size_t size) {
    if (block == NULL) return NULL;
    acquire();
    ++figures->allocations;
    figures->allocated_bytes += size;
    insert((struct entry){(uintptr_t)block, size, figures->window});
    release();
    return block;
}

static void count_entry_freed(struct entry entry) {
    if (entry.address == 0 || entry.window != figures->window) {
        ++figures->unknown_frees;
        return;
    }
    ++figures->frees;
    figures->freed_bytes += entry.size_bytes;
}

void* malloc(size_t size) {
    return count_allocated(__libc_malloc(size), size);
}

void* calloc(size_t count, size_t size) {
    return count_allocated(__libc_calloc(count, size), count * size);
}

void free(void* block) {
    if (block == NULL) return;
    acquire();
    count_entry_freed(take(block));
    release();
    __libc_free(block);
}

void* realloc(void* old, size_t size) {
    if (old == NULL) return malloc(size);
    acquire();
    const struct entry entry = take(old);
    release();
    void* block = __libc_realloc(old, size);
    acquire();
    if (block == NULL && size != 0)
        insert(entry);
    else
        count_entry_freed(entry);
    release();
    return count_allocated(block, size);
}

void* reallocarray(void* old, size_t count, size_t size) {
    size_t total;
    if (!__builtin_mul_overflow(count, size, &total)) return realloc(old, total);
    errno = ENOMEM;
    return NULL;
}

void* memalign(size_t alignment, size_t size) {
    return count_allocated(__libc_memalign(alignment, size), size);
}

void* aligned_alloc(size_t alignment, size_t size) {
    return memalign(alignment, size);
}

int posix_memalign(void** out, size_t alignment, size_t size) {
    if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0) return EINVAL;
    void* block = memalign(alignment, size);
    if (block == NULL) return ENOMEM;
    *out = block;
    return 0;
}

void* valloc(size_t size) {
    return memalign(4096, size);
}

void* pvalloc(size_t size) {
    return count_allocated(__libc_memalign(4096, (size + 4095) / 4096 * 4096), size);
}

static struct counting_figures* open_file_in(const char* directory) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%d", directory, (int)getpid());
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || ftruncate(fd, sizeof(struct counting_figures)) != 0) abort();
    struct counting_figures* shared = map(sizeof *shared, fd);
    close(fd);
    return shared;
}

/* In the child. What it inherits is of no window of its own. */
static void leave_file_to_parent(void) {
    lock = 0;
    own_figures = (struct counting_figures){.window = figures->window + 1};
    figures = &own_figures;
    if (getenv("COUNTING_PRELOAD_CHILDREN") == NULL) return;
    struct counting_figures* shared = open_file_in(getenv("COUNTING_PRELOAD_DIRECTORY"));
    *shared = own_figures;
    figures = shared;
}

__attribute__((constructor)) static void open_file(void) {
    const char* directory = getenv("COUNTING_PRELOAD_DIRECTORY");
    if (directory == NULL) return;
    struct counting_figures* shared = open_file_in(directory);
    acquire();
    *shared = *figures;
    figures = shared;
    release();
    pthread_atfork(NULL, NULL, leave_file_to_parent);
}
