/* A pool on two semaphores a thread; neither allocates. */
#include "threads.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>

#include "workload.h"

static struct {
    pthread_t thread;
    sem_t begin;
    sem_t done;
} pool[WORKLOAD_MAX_THREADS];
static void (*current_work)(int index);
static __thread int own_index;

static void* run_thread(void* argument) {
    own_index = (int)(intptr_t)argument;
    for (;;) {
        while (sem_wait(&pool[own_index].begin) != 0) {
        }
        current_work(own_index);
        sem_post(&pool[own_index].done);
    }
    return NULL;
}

static void* exit_at_once(void* unused) {
    (void)unused;
    pthread_exit(NULL);
}

/* The first pthread_exit of a process loads libgcc_s, which allocates: better before `ready`. */
static void load_the_unwinder(void) {
    pthread_t thread;
    workload_require(pthread_create(&thread, NULL, exit_at_once, NULL) == 0, "a thread");
    pthread_join(thread, NULL);
}

void threads_start(int count) {
    load_the_unwinder();
    threads_start_without_unwinder(count);
}

void threads_start_without_unwinder(int count) {
    for (int i = 0; i < count; ++i) {
        sem_init(&pool[i].begin, 0, 0);
        sem_init(&pool[i].done, 0, 0);
        const int status = pthread_create(&pool[i].thread, NULL, run_thread, (void*)(intptr_t)i);
        workload_require(status == 0, "a thread");
    }
}

void threads_run(int count, void (*work)(int index)) {
    current_work = work;
    for (int i = 0; i < count; ++i)
        sem_post(&pool[i].begin);
    for (int i = 0; i < count; ++i)
        while (sem_wait(&pool[i].done) != 0) {
        }
}

static void post_done(void* unused) {
    (void)unused;
    sem_post(&pool[own_index].done);
}

void threads_exit(void) {
    pthread_cleanup_push(post_done, NULL);
    pthread_exit(NULL);
    pthread_cleanup_pop(0);
}
