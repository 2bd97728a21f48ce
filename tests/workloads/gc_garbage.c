/* What a collector gives back, finalizers that allocate, and allocation without a call: a step for each line `go`, each
 * answered by one line of JSON. `quit N` ends it. */
#include <gc/gc.h>
#include <gc/gc_inline.h>
#include <gc/gc_tiny_fl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "workload.h"

enum { KEPT = 1000, GARBAGE = 20000, FINALIZED = 200, INLINED = 100000 };

void* kept[KEPT]; /* not static: what nobody reads is left out */
void* kept_by_finalizers[FINALIZED];
static int finalized;
static void* free_lists[GC_TINY_FREELISTS];

CALL_SITE static void keeps(void) {
    for (int i = 0; i < KEPT; ++i)
        kept[i] = GC_malloc(100);
}

CALL_SITE static void makes_garbage(void) {
    for (int i = 0; i < GARBAGE; ++i) {
        void* volatile block = GC_malloc(100);
        (void)block;
    }
}

CALL_SITE static void finalizes(void* object, void* data) {
    (void)object;
    (void)data;
    kept_by_finalizers[finalized++] = GC_malloc(24);
}

CALL_SITE static void makes_finalized(void) {
    for (int i = 0; i < FINALIZED; ++i) {
        void* object = GC_malloc(200);
        GC_register_finalizer(object, finalizes, NULL, NULL, NULL);
    }
}

/* By gc_inline.h: no function is called but when a page has been used up. */
CALL_SITE static void allocates_inlined(void) {
    for (int i = 0; i < INLINED; ++i) {
        void* result;
        GC_MALLOC_WORDS(result, 8, free_lists);
        void* volatile block = result;
        (void)block;
    }
}

/* So that no dead address is left on the stack. */
CALL_SITE static void clears_stack(void) {
    volatile char stack[16384];
    for (size_t i = 0; i < sizeof stack; ++i)
        stack[i] = 0;
}

static void collects(void) {
    clears_stack();
    GC_gcollect();
    clears_stack();
    GC_gcollect();
}

static void run(int step) {
    if (step == 0) keeps();
    if (step == 0) makes_garbage();
    if (step == 1) makes_finalized();
    if (step == 2) allocates_inlined();
    collects();
}

static void answer(void) {
    char text[200];
    const int length = snprintf(text, sizeof text, "{\"collections\":%lu,\"finalized\":%d}\n",
                                (unsigned long)GC_get_gc_no(), finalized);
    workload_write(text, (size_t)length);
}

int main(void) {
    char line[100];
    GC_INIT();
    workload_print_ready();
    for (int step = 0; workload_read_line(line, sizeof line); ++step) {
        if (strncmp(line, "quit ", 5) == 0) _exit(atoi(line + 5));
        run(step);
        answer();
    }
    return 0;
}
