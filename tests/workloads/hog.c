/* `hog`: prints `ready PID`; after a line `go` it allocates blocks of 1 MiB and touches them, until it is killed for it
 * or has 256 of them; then it prints {"blocks":N} and ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "workload.h"

enum { BLOCKS = 256, BLOCK_BYTES = 1 << 20 };

static void* volatile sink;

CALL_SITE static void hog_takes(void) {
    void* block = malloc(BLOCK_BYTES);
    memset(block, 1, BLOCK_BYTES);
    sink = block;
}

int main(void) {
    char line[16];
    workload_print_ready();
    if (!workload_read_line(line, sizeof line)) return 0;
    for (int i = 0; i < BLOCKS; ++i)
        hog_takes();
    char text[32];
    const int length = snprintf(text, sizeof text, "{\"blocks\":%d}\n", BLOCKS);
    workload_write(text, (size_t)length);
    return 0;
}
