/* Allocates and frees blocks of a few sizes at full speed, and tells what it has. `census_churn THREADS ARENAS`: 0
 * arenas are as many as the C library likes. Prints `ready PID` and churns at once. Commands:
 *   leak N   N more blocks of 200 bytes are kept, in the midst of the churn; answered when they are
 *   still    nothing moves until `go`; answered by {"arena":N,"fordblks":N,...,"sizes":{"200":N,...}}: mallinfo2() and
 *            the blocks that it has of each size
 *   go       answered by a line
 *   quit     */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "workload.h"

enum { MAX_THREADS = 8, SLOTS = 200, SIZES = 8, LEAKED_SIZE = 200, CALLS_A_LEAK = 8 };

static const size_t sizes[SIZES] = {24, 64, 112, LEAKED_SIZE, 400, 2000, 6000, 20000};
static void* slots[MAX_THREADS][SIZES][SLOTS];
static atomic_long to_leak, leaked;
static atomic_bool must_stand;
static int thread_count;
static pthread_barrier_t standing, going;

static void leak_one(void) {
    if (atomic_fetch_sub(&to_leak, 1) <= 0) {
        atomic_fetch_add(&to_leak, 1);
        return;
    }
    void* block = malloc(LEAKED_SIZE);
    if (block == NULL) abort();
    memset(block, 1, LEAKED_SIZE);
    atomic_fetch_add(&leaked, 1);
}

static void replace(int thread, uint64_t random) {
    const size_t which = random % SIZES;
    void** slot = &slots[thread][which][random / SIZES % SLOTS];
    if (*slot != NULL) {
        free(*slot);
        *slot = NULL;
        return;
    }
    *slot = malloc(sizes[which]);
    if (*slot == NULL) abort();
    memset(*slot, 1, sizes[which]);
}

static void* churn(void* number) {
    const int thread = (int)(intptr_t)number;
    uint64_t random = 88172645463325252ull + (uint64_t)thread * 7919;
    for (uint64_t call = 0;; ++call) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        replace(thread, random >> 8);
        if (call % CALLS_A_LEAK == 0) leak_one();
        if (!atomic_load_explicit(&must_stand, memory_order_relaxed)) continue;
        pthread_barrier_wait(&standing);
        pthread_barrier_wait(&going);
    }
    return NULL;
}

static void print_truth(void) {
    const struct mallinfo2 info = mallinfo2();
    printf("{\"arena\":%zu,\"fordblks\":%zu,\"fsmblks\":%zu,\"hblks\":%zu,\"hblkhd\":%zu,\"sizes\":{", info.arena,
           info.fordblks, info.fsmblks, info.hblks, info.hblkhd);
    for (int which = 0; which < SIZES; ++which) {
        long blocks = sizes[which] == LEAKED_SIZE ? atomic_load(&leaked) : 0;
        for (int thread = 0; thread < thread_count; ++thread)
            for (int slot = 0; slot < SLOTS; ++slot)
                if (slots[thread][which][slot] != NULL) ++blocks;
        printf("%s\"%zu\":%ld", which == 0 ? "" : ",", sizes[which], blocks);
    }
    printf("}}\n");
    fflush(stdout);
}

static void obey(const char* command) {
    if (strncmp(command, "leak ", 5) == 0) {
        const long target = atomic_load(&leaked) + atol(command + 5);
        atomic_store(&to_leak, atol(command + 5));
        while (atomic_load(&leaked) < target)
            usleep(1000);
        puts("leaked");
    } else if (strncmp(command, "still", 5) == 0) {
        atomic_store(&must_stand, true);
        pthread_barrier_wait(&standing);
        print_truth();
    } else if (strncmp(command, "go", 2) == 0) {
        atomic_store(&must_stand, false);
        pthread_barrier_wait(&going);
        puts("going");
    }
    fflush(stdout);
}

int main(int count, char** arguments) {
    thread_count = count > 1 ? atoi(arguments[1]) : 1;
    if (thread_count < 1 || thread_count > MAX_THREADS) return 2;
    if (count > 2 && atoi(arguments[2]) > 0) mallopt(M_ARENA_MAX, atoi(arguments[2]));
    static void* volatile large[3];
    for (int i = 0; i < 3; ++i)
        large[i] = malloc(200000 + 100000 * (size_t)i);
    pthread_barrier_init(&standing, NULL, (unsigned)thread_count + 1);
    pthread_barrier_init(&going, NULL, (unsigned)thread_count + 1);
    pthread_t thread;
    for (int i = 0; i < thread_count; ++i)
        if (pthread_create(&thread, NULL, churn, (void*)(intptr_t)i) != 0) abort();
    printf("ready %d\n", getpid());
    fflush(stdout);
    char command[64];
    while (fgets(command, sizeof command, stdin) != NULL && strncmp(command, "quit", 4) != 0)
        obey(command);
    return large[0] == NULL;
}
