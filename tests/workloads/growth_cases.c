/* Grows in every kind of memory when it is told to: `grow` touches so many MiB of each and is answered by {"rss":N},
 * its resident bytes by its own /proc/self/smaps_rollup; `quit` ends it. Prints `ready PID N` first, N as above. */
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MIB = 1 << 20, HEAP = 8, ARENA = 6, ANONYMOUS = 12, SHARED = 5, FILES = 3, STACK = 4 };

static pthread_barrier_t done, never;

static long rss_bytes(void) {
    char line[256];
    long kibibytes = -1;
    FILE* file = fopen("/proc/self/smaps_rollup", "re");
    if (file == NULL) abort();
    while (kibibytes < 0 && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "Rss: %ld", &kibibytes) != 1) kibibytes = -1;
    fclose(file);
    return kibibytes * 1024;
}

/* In blocks that have no mapping of their own. */
static void grow_heap(size_t size_bytes) {
    enum { BLOCK = 64 << 10 };
    for (size_t sum = 0; sum < size_bytes; sum += BLOCK) {
        char* block = malloc(BLOCK - 16);
        if (block == NULL) abort();
        memset(block, 1, BLOCK - 16);
    }
}

static void grow_mapping(size_t size_bytes, int flags, int fd) {
    char* mapping = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (mapping == MAP_FAILED) abort();
    memset(mapping, 1, size_bytes);
}

static void* live_on(void* unused) {
    volatile char on_stack[STACK * MIB];
    for (size_t i = 0; i < sizeof on_stack; i += 4096)
        on_stack[i] = 1;
    grow_heap(ARENA * MIB);
    pthread_barrier_wait(&done);
    pthread_barrier_wait(&never);
    return unused;
}

static void grow(void) {
    grow_heap(HEAP * MIB);
    grow_mapping(ANONYMOUS * MIB, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    grow_mapping(SHARED * MIB, MAP_SHARED | MAP_ANONYMOUS, -1);
    char path[] = "/tmp/growth_cases_XXXXXX";
    const int fd = mkstemp(path);
    if (fd < 0 || unlink(path) != 0 || ftruncate(fd, FILES * MIB) != 0) abort();
    grow_mapping(FILES * MIB, MAP_PRIVATE, fd);
    pthread_t thread;
    if (pthread_create(&thread, NULL, live_on, NULL) != 0) abort();
    pthread_barrier_wait(&done);
}

int main(void) {
    pthread_barrier_init(&done, NULL, 2);
    pthread_barrier_init(&never, NULL, 2);
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    printf("ready %d\n", getpid());
    fflush(stdout);
    char command[64];
    while (fgets(command, sizeof command, stdin) != NULL && strncmp(command, "quit", 4) != 0) {
        if (strncmp(command, "grow", 4) == 0) grow();
        printf("{\"rss\":%ld}\n", rss_bytes());
        fflush(stdout);
    }
    return 0;
}
