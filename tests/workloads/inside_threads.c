/* Handlers that interrupt malloc on threads: an alternate stack above and below the thread's own, and threads that end
 * inside malloc. The arena of such a thread stays locked, so each ends up with one of its own. */
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "inside_malloc.h"
#include "workload.h"

enum { STACK_SIZE = 256 << 10, CACHED_SIZE = 56, CACHED_COUNT = 7, LANES = 6 };

/* One thread, started before `ready`, that does one piece of work when told. */
struct lane {
    void (*work)(void);
    char* alternate_stack; /* NULL: none */
    sem_t begin;
    sem_t done;
};
static struct lane lanes[LANES];
static __thread struct lane* own_lane;
static void* volatile sink;

CALL_SITE static void* handler_of_a_thread_mallocs(void) {
    truth_allocated(truth_site("handler_of_a_thread_mallocs"), CACHED_SIZE);
    return malloc(CACHED_SIZE);
}

static void allocate(void) {
    sink = handler_of_a_thread_mallocs();
}

static void be_interrupted(void) {
    for (int i = 0; i < 3; ++i) {
        sink = inside_malloc(allocate);
        truth_allocated(truth_site("inside_malloc"), INSIDE_MALLOC_SIZE);
    }
}

static void end_thread(void) {
    truth_abandoned(1);
    sem_post(&own_lane->done);
    pthread_exit(NULL);
}

static void allocate_and_end_thread(void) {
    allocate();
    end_thread();
}

static void end_inside_malloc(void) {
    sink = inside_malloc(end_thread);
}

static void allocate_and_end_inside_malloc(void) {
    sink = inside_malloc(allocate_and_end_thread);
}

static void fill_cache(void) {
    void* cached[CACHED_COUNT];
    for (int i = 0; i < CACHED_COUNT; ++i)
        cached[i] = malloc(CACHED_SIZE);
    for (int i = 0; i < CACHED_COUNT; ++i)
        free(cached[i]);
}

static void* run_lane(void* argument) {
    own_lane = argument;
    fill_cache();
    if (own_lane->alternate_stack != NULL) {
        const stack_t stack = {.ss_sp = own_lane->alternate_stack, .ss_size = STACK_SIZE};
        workload_require(sigaltstack(&stack, NULL) == 0, "an alternate stack");
    }
    sem_post(&own_lane->done);
    while (sem_wait(&own_lane->begin) != 0) {
    }
    own_lane->work();
    sem_post(&own_lane->done);
    for (;;)
        sem_wait(&own_lane->begin);
    return NULL;
}

static void start_lane(int number, void (*work)(void), char* stack, char* alternate_stack) {
    struct lane* lane = &lanes[number];
    *lane = (struct lane){.work = work, .alternate_stack = alternate_stack};
    sem_init(&lane->begin, 0, 0);
    sem_init(&lane->done, 0, 0);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (stack != NULL) pthread_attr_setstack(&attributes, stack, STACK_SIZE);
    pthread_t thread;
    workload_require(pthread_create(&thread, &attributes, run_lane, lane) == 0, "a thread");
    while (sem_wait(&lane->done) != 0) {
    }
}

static void run_one(int number) {
    sem_post(&lanes[number].begin);
    while (sem_wait(&lanes[number].done) != 0) {
    }
}

static char* map_two_stacks(void) {
    void* both = mmap(NULL, 2 * STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    workload_require(both != MAP_FAILED, "two stacks");
    return both;
}

static void* exit_at_once(void* unused) {
    (void)unused;
    pthread_exit(NULL);
}

void workload_prepare(void) {
    pthread_t first;
    workload_require(pthread_create(&first, NULL, exit_at_once, NULL) == 0, "a thread that loads libgcc_s");
    pthread_join(first, NULL);
    inside_malloc_prepare();
    char* stacks = map_two_stacks();
    start_lane(0, be_interrupted, stacks + STACK_SIZE, stacks);
    stacks = map_two_stacks();
    start_lane(1, be_interrupted, stacks, stacks + STACK_SIZE);
    start_lane(2, end_inside_malloc, NULL, NULL);
    start_lane(3, allocate_and_end_inside_malloc, NULL, NULL);
    stacks = map_two_stacks();
    start_lane(4, end_inside_malloc, stacks + STACK_SIZE, stacks);
    stacks = map_two_stacks();
    start_lane(5, end_inside_malloc, stacks, stacks + STACK_SIZE);
}

static void alternate_stack_below(void) {
    run_one(0);
}

static void alternate_stack_above(void) {
    run_one(1);
}

static void thread_ends_inside_malloc(void) {
    truth_unknown_frees_are_minimum();
    run_one(2);
    run_one(3);
}

static void thread_ends_inside_malloc_on_an_alternate_stack(void) {
    truth_unknown_frees_are_minimum();
    run_one(4);
    run_one(5);
}

CALL_SITE static void* mallocs_afterwards(void) {
    truth_allocated(truth_site("mallocs_afterwards"), 300);
    return malloc(300);
}

static void others_go_on(void) {
    sink = mallocs_afterwards();
}

const struct workload_case workload_cases[] = {
    {"alternate_stack_below", alternate_stack_below},
    {"alternate_stack_above", alternate_stack_above},
    {"thread_ends_inside_malloc", thread_ends_inside_malloc},
    {"thread_ends_inside_malloc_on_an_alternate_stack", thread_ends_inside_malloc_on_an_alternate_stack},
    {"others_go_on", others_go_on},
    {NULL, NULL},
};
