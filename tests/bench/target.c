/* The target of the bench: a tight loop of malloc(64) and free at a chosen depth of the stack, timed by itself. A slice
 * counts only if the machine was quiet: the kernel gave the processor to nobody else meanwhile, and two reference
 * loops, one of arithmetic and one of system calls, that run before and after it are within 25 % of their best (in a
 * virtual machine less is never kept). */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "protocol.h"

#define NOISE_LIMIT 1.25

struct reference {
    double arithmetic_ns;
    double syscalls_ns;
};

static struct reference best = {1e18, 1e18};

static double now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static struct reference measure_reference(void) {
    double begin = now_ns();
    /* A chain in registers: a counter in memory takes 1x or 3x on the same quiet core (store forwarding). */
    uint64_t product = 1;
    for (long step = 0; step < 100000; ++step) {
        product *= 0x9e3779b97f4a7c15u;
        __asm__ volatile("" : "+r"(product));
    }
    double middle = now_ns();
    for (int call = 0; call < 1500; ++call)
        getppid();
    struct reference reference = {middle - begin, now_ns() - middle};
    if (reference.arithmetic_ns < best.arithmetic_ns) best.arithmetic_ns = reference.arithmetic_ns;
    if (reference.syscalls_ns < best.syscalls_ns) best.syscalls_ns = reference.syscalls_ns;
    return reference;
}

static bool is_quiet(struct reference reference) {
    return reference.arithmetic_ns < best.arithmetic_ns * NOISE_LIMIT &&
           reference.syscalls_ns < best.syscalls_ns * NOISE_LIMIT;
}

static long preemptions(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
}

static __attribute__((noinline)) void allocate_pairs(uint64_t pairs) {
    for (uint64_t pair = 0; pair < pairs; ++pair) {
        void* block = malloc(64);
        __asm__ volatile("" : : "r"(block) : "memory");
        free(block);
    }
}

static void* live[BENCH_MAX_LIVE_BLOCKS];

static __attribute__((noinline)) void replace_blocks(uint64_t pairs, uint32_t live_blocks) {
    static uint64_t random = 88172645463325252ull;
    for (uint64_t pair = 0; pair < pairs; ++pair) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        void** block = &live[random % live_blocks];
        free(*block);
        *block = malloc(64);
    }
}

static void run_pairs(const struct bench_request* request) {
    if (request->live_blocks == 0)
        allocate_pairs(request->pairs);
    else
        replace_blocks(request->pairs, request->live_blocks);
}

static __attribute__((noinline)) void measure(const struct bench_request* request, struct bench_result* result) {
    for (uint32_t block = 0; block < request->live_blocks; ++block)
        live[block] = malloc(64);
    /* Each address is seen once more before it is timed. */
    for (uint32_t block = 0; block < request->live_blocks; ++block) {
        free(live[block]);
        live[block] = malloc(64);
    }
    run_pairs(request);
    struct reference before = measure_reference();
    for (uint32_t slice = 0; slice < request->slices; ++slice) {
        long preemptions_before = preemptions();
        double begin = now_ns();
        run_pairs(request);
        double duration_ns = now_ns() - begin;
        bool is_undisturbed = preemptions() == preemptions_before;
        struct reference after = measure_reference();
        if (is_undisturbed && is_quiet(before) && is_quiet(after))
            result->pair_ns[result->quiet_slices++] = duration_ns / (double)request->pairs;
        before = after;
    }
    for (uint32_t block = 0; block < request->live_blocks && !request->keeps_blocks; ++block)
        free(live[block]);
}

static __attribute__((noinline)) void descend(uint32_t frames, const struct bench_request* request,
                                              struct bench_result* result) {
    if (frames > 1)
        descend(frames - 1, request, result);
    else
        measure(request, result);
    __asm__ volatile("");
}

/* The last processor is left to the target alone. */
static void pin(void) {
    cpu_set_t processors;
    if (sched_getaffinity(0, sizeof processors, &processors) != 0) return;
    int last = CPU_SETSIZE - 1;
    while (last > 0 && !CPU_ISSET(last, &processors))
        --last;
    CPU_ZERO(&processors);
    CPU_SET(last, &processors);
    sched_setaffinity(0, sizeof processors, &processors);
}

int main(void) {
    /* main, measure and allocate_pairs are frames, too. */
    const uint32_t other_frames = 3;
    struct bench_request request;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin();
    while (read(STDIN_FILENO, &request, sizeof request) == (ssize_t)sizeof request) {
        struct bench_result result = {.quiet_slices = 0};
        if (request.live_blocks > BENCH_MAX_LIVE_BLOCKS || request.slices > BENCH_MAX_SLICES ||
            request.frames <= other_frames)
            return 2;
        descend(request.frames - other_frames, &request, &result);
        if (write(STDOUT_FILENO, &result, sizeof result) != (ssize_t)sizeof result) return 1;
    }
    return 0;
}
