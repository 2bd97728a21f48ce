/* A process whose first thread has ended: what is left of it prints `ready PID`, and for each line on stdin allocates
 * ten times 100 bytes and answers with a line. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "workload.h"

static void* volatile sink;
static pthread_t first;

CALL_SITE static void* mainless_mallocs(void) {
    return malloc(100);
}

static void* live_on(void* nothing) {
    char line[64];
    (void)nothing;
    pthread_join(first, NULL);
    workload_print_ready();
    while (workload_read_line(line, sizeof line) && strcmp(line, "quit 0") != 0) {
        for (int i = 0; i < 10; ++i)
            sink = mainless_mallocs();
        workload_write("{}\n", 3);
    }
    _exit(0);
}

int main(void) {
    pthread_t thread;
    first = pthread_self();
    workload_require(pthread_create(&thread, NULL, live_on, NULL) == 0, "a thread");
    pthread_exit(NULL);
}
