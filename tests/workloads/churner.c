/* Allocates, resizes and frees at full speed on several threads until it is told to stand still: `pause` is answered,
 * within a few hundred calls of each thread, by {"blocks":[["0x...",size],...]} with every block that it holds;
 * `resume` lets it run on; `quit N` ends it. `churner [THREADS]`; prints `ready PID` and churns at once. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "workload.h"

enum { MAX_THREADS = 8, SLOTS = 128 };

struct slot {
    void* block;
    size_t size_bytes;
};
static struct slot slots[MAX_THREADS][SLOTS];
static int thread_count = 2;
static bool must_pause;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t resumed = PTHREAD_COND_INITIALIZER;
static pthread_cond_t paused = PTHREAD_COND_INITIALIZER;
static int paused_count;

CALL_SITE static void* churner_mallocs(size_t size) {
    return malloc(size);
}

CALL_SITE static void* churner_reallocs(void* old, size_t size) {
    return realloc(old, size);
}

static void replace(struct slot* slot, uint32_t random) {
    const size_t size = 16 + random % 2000;
    if (random >> 28 < 3 && slot->block != NULL) {
        slot->block = churner_reallocs(slot->block, size);
    } else {
        free(slot->block);
        slot->block = churner_mallocs(size);
    }
    slot->size_bytes = size;
}

static void stand_still(void) {
    pthread_mutex_lock(&mutex);
    ++paused_count;
    pthread_cond_signal(&paused);
    while (__atomic_load_n(&must_pause, __ATOMIC_SEQ_CST))
        pthread_cond_wait(&resumed, &mutex);
    --paused_count;
    pthread_mutex_unlock(&mutex);
}

static void* churn(void* own_slots) {
    uint32_t random = (uint32_t)(uintptr_t)own_slots | 1;
    for (;;) {
        if (__atomic_load_n(&must_pause, __ATOMIC_RELAXED)) stand_still();
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        replace((struct slot*)own_slots + random % SLOTS, random);
    }
    return NULL;
}

static void pause_all(void) {
    pthread_mutex_lock(&mutex);
    __atomic_store_n(&must_pause, true, __ATOMIC_SEQ_CST);
    while (paused_count < thread_count)
        pthread_cond_wait(&paused, &mutex);
    pthread_mutex_unlock(&mutex);
}

static void resume_all(void) {
    pthread_mutex_lock(&mutex);
    __atomic_store_n(&must_pause, false, __ATOMIC_SEQ_CST);
    pthread_cond_broadcast(&resumed);
    pthread_mutex_unlock(&mutex);
}

static void print_blocks(void) {
    static char text[MAX_THREADS * SLOTS * 48 + 64];
    size_t length = (size_t)sprintf(text, "{\"blocks\":[");
    const char* separator = "";
    for (int i = 0; i < thread_count; ++i)
        for (int j = 0; j < SLOTS; ++j) {
            if (slots[i][j].block == NULL) continue;
            length += (size_t)sprintf(text + length, "%s[\"0x%lx\",%zu]", separator, (unsigned long)slots[i][j].block,
                                      slots[i][j].size_bytes);
            separator = ",";
        }
    length += (size_t)sprintf(text + length, "]}\n");
    workload_write(text, length);
}

int main(int argc, char** argv) {
    if (argc > 1) thread_count = atoi(argv[1]);
    workload_require(thread_count > 0 && thread_count <= MAX_THREADS, "between 1 and 8 threads");
    char line[64];
    for (int i = 0; i < thread_count; ++i) {
        pthread_t thread;
        workload_require(pthread_create(&thread, NULL, churn, slots[i]) == 0, "a thread");
    }
    workload_print_ready();
    while (workload_read_line(line, sizeof line)) {
        if (strncmp(line, "quit", 4) == 0) _exit(line[4] == ' ' ? atoi(line + 5) : 0);
        if (strcmp(line, "pause") == 0) {
            pause_all();
            print_blocks();
        }
        if (strcmp(line, "resume") == 0) resume_all();
    }
    _exit(0);
}
