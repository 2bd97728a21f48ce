/* A child that was forked holds what its parent's collector gives back later: a step for each line `go`, answered by
 * one line of JSON. `quit N` ends both. */
#include <gc/gc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "workload.h"

enum { KEPT = 1000 };

void* kept[KEPT]; /* not static: what nobody reads is left out */

CALL_SITE static void keeps(void) {
    for (int i = 0; i < KEPT; ++i)
        kept[i] = GC_malloc(100);
}

CALL_SITE static void clears_stack(void) {
    volatile char stack[16384];
    for (size_t i = 0; i < sizeof stack; ++i)
        stack[i] = 0;
}

static pid_t fork_one_that_waits(void) {
    const pid_t child = fork();
    while (child == 0)
        pause();
    return child;
}

int main(void) {
    char line[100];
    pid_t child = 0;
    GC_INIT();
    workload_print_ready();
    for (int step = 0; workload_read_line(line, sizeof line); ++step) {
        if (strncmp(line, "quit ", 5) == 0) {
            if (child > 0) kill(child, SIGKILL);
            if (child > 0) waitpid(child, NULL, 0);
            _exit(atoi(line + 5));
        }
        if (step == 0) keeps();
        if (step == 0) child = fork_one_that_waits();
        if (step == 1) {
            memset(kept, 0, sizeof kept);
            clears_stack();
            GC_gcollect();
            clears_stack();
            GC_gcollect();
        }
        char text[100];
        workload_write(text, (size_t)snprintf(text, sizeof text, "{\"child\":%d}\n", (int)child));
    }
    return 0;
}
