/* The program that `memtrace selftest` traces: a dynamically linked program on the machine's own C library, which
 * counts what it asks of the allocator and prints it. memtrace carries it inside and starts it from memory. Protocol:
 * it says "ready"; a line on stdin lets it work; it prints one JSON object and lives until stdin ends. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { THREADS = 3, ROUNDS = 1000, OLD_BLOCKS = 10, KEPT_EVERY = 50, MAPPED_EVERY = 100, PAGE = 4096 };

struct counts {
    uint64_t allocated_bytes, allocations, freed_bytes, frees, kept_bytes, kept_blocks;
    uint64_t mapped_bytes, unmapped_bytes, unknown_frees;
};

struct worker {
    pthread_t thread;
    unsigned number;
    void* old_blocks[OLD_BLOCKS];
    struct counts counts;
};

static pthread_barrier_t start_of_work;
static pthread_barrier_t end_of_work;
static void* volatile sink; /* so that no call is optimized away */

static void fail(const char* what) {
    perror(what);
    exit(EXIT_FAILURE);
}

static void* counted(struct counts* counts, void* block, size_t size_bytes) {
    if (block == NULL) fail("selftest workload: no memory");
    counts->allocated_bytes += size_bytes;
    ++counts->allocations;
    sink = block;
    return block;
}

static void give_back(struct counts* counts, void* block, size_t size_bytes) {
    free(block);
    counts->freed_bytes += size_bytes;
    ++counts->frees;
}

/* The call site whose name and sum memtrace has to tell. */
__attribute__((noinline)) static void selftest_keeps(struct counts* counts, size_t size_bytes) {
    counted(counts, malloc(size_bytes), size_bytes);
    counts->kept_bytes += size_bytes;
    ++counts->kept_blocks;
}

static void reallocate(struct counts* counts, size_t size_bytes) {
    void* block = counted(counts, calloc(2, size_bytes), 2 * size_bytes);
    void* grown = realloc(block, 3 * size_bytes);
    counted(counts, grown, 3 * size_bytes);
    counts->freed_bytes += 2 * size_bytes;
    ++counts->frees;
    give_back(counts, grown, 3 * size_bytes);
}

static void align(struct counts* counts, size_t size_bytes) {
    void* block = NULL;
    if (posix_memalign(&block, 64, size_bytes) != 0) fail("selftest workload: posix_memalign");
    give_back(counts, counted(counts, block, size_bytes), size_bytes);
    give_back(counts, counted(counts, aligned_alloc(128, 128 * size_bytes), 128 * size_bytes), 128 * size_bytes);
}

/* The middle one of three pages goes, then the others: memtrace has to know mappings by interval. */
static void map(struct counts* counts) {
    char* pages = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) fail("selftest workload: mmap");
    counts->mapped_bytes += 3 * PAGE;
    munmap(pages + PAGE, PAGE);
    munmap(pages, PAGE);
    munmap(pages + 2 * PAGE, PAGE);
    counts->unmapped_bytes += 3 * PAGE;
}

static void work(struct worker* worker) {
    struct counts* counts = &worker->counts;
    uint32_t random = 12345 + worker->number;
    for (int round = 0; round < ROUNDS; ++round) {
        random = random * 1664525 + 1013904223;
        const size_t size_bytes = 1 + (random >> 20);
        give_back(counts, counted(counts, malloc(size_bytes), size_bytes), size_bytes);
        if (round % 4 == 1) reallocate(counts, size_bytes);
        if (round % 4 == 2) align(counts, size_bytes);
        if (round % KEPT_EVERY == 0) selftest_keeps(counts, size_bytes);
        if (round % MAPPED_EVERY == 0) map(counts);
    }
    for (int i = 0; i < OLD_BLOCKS; ++i)
        free(worker->old_blocks[i]);
    counts->unknown_frees += OLD_BLOCKS;
}

static void* run(void* argument) {
    pthread_barrier_wait(&start_of_work);
    work(argument);
    pthread_barrier_wait(&end_of_work);
    /* A thread that ends has its cache emptied by frees inside the C library. */
    for (;;)
        pause();
    return NULL;
}

static void add(struct counts* sum, const struct counts* part) {
    sum->allocated_bytes += part->allocated_bytes;
    sum->allocations += part->allocations;
    sum->freed_bytes += part->freed_bytes;
    sum->frees += part->frees;
    sum->kept_bytes += part->kept_bytes;
    sum->kept_blocks += part->kept_blocks;
    sum->mapped_bytes += part->mapped_bytes;
    sum->unmapped_bytes += part->unmapped_bytes;
    sum->unknown_frees += part->unknown_frees;
}

/* Without stdio, which allocates. */
static void say(const char* text, int length) {
    if (write(STDOUT_FILENO, text, (size_t)length) != length) exit(EXIT_FAILURE);
}

static void tell(const struct counts* sum) {
    char text[1024];
    const int length =
        snprintf(text, sizeof text,
                 "{\"heap\":{\"allocated_bytes\":%ju,\"allocations\":%ju,\"freed_bytes\":%ju,\"frees\":%"
                 "ju,\"live_bytes\":%ju,\"live_blocks\":%ju},\"mappings\":{\"mapped_bytes\":%ju,"
                 "\"unmapped_bytes\":%ju},\"kept_bytes\":%ju,\"kept_blocks\":%ju,\"unknown_frees\":%ju}\n",
                 sum->allocated_bytes, sum->allocations, sum->freed_bytes, sum->frees,
                 sum->allocated_bytes - sum->freed_bytes, sum->allocations - sum->frees, sum->mapped_bytes,
                 sum->unmapped_bytes, sum->kept_bytes, sum->kept_blocks, sum->unknown_frees);
    say(text, length);
}

static void wait_for_line(void) {
    char byte = 0;
    while (byte != '\n')
        if (read(STDIN_FILENO, &byte, 1) != 1) exit(EXIT_FAILURE);
}

int main(void) {
    static struct worker workers[THREADS];
    pthread_barrier_init(&start_of_work, NULL, THREADS + 1);
    pthread_barrier_init(&end_of_work, NULL, THREADS + 1);
    for (unsigned i = 0; i < THREADS; ++i) {
        workers[i].number = i;
        for (int block = 0; block < OLD_BLOCKS; ++block)
            workers[i].old_blocks[block] = malloc(100);
        if (pthread_create(&workers[i].thread, NULL, run, &workers[i]) != 0) fail("selftest workload: a thread");
    }
    say("ready\n", 6);
    wait_for_line();
    pthread_barrier_wait(&start_of_work);
    pthread_barrier_wait(&end_of_work);
    struct counts sum = {0};
    for (unsigned i = 0; i < THREADS; ++i)
        add(&sum, &workers[i].counts);
    tell(&sum);
    for (;;) {
        char byte;
        if (read(STDIN_FILENO, &byte, 1) <= 0) return 0;
    }
}
