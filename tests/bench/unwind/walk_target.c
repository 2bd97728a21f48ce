/* The target of the walks: `FRAMES CALLS` on a line, and it calls malloc and free CALLS times with FRAMES functions on
 * its stack, main among them; answers each line with one. */
#include <stdio.h>
#include <stdlib.h>

static __attribute__((noinline)) void descend(unsigned frames, unsigned long calls) {
    char locals[80];
    __asm__ volatile("" ::"r"(locals) : "memory");
    for (; frames <= 2 && calls > 0; --calls) {
        void* block = malloc(64);
        __asm__ volatile("" ::"r"(block) : "memory");
        free(block);
    }
    if (frames > 2) descend(frames - 1, calls);
    __asm__ volatile("" ::"r"(locals) : "memory");
}

int main(void) {
    unsigned frames;
    unsigned long calls;
    setvbuf(stdout, NULL, _IONBF, 0);
    while (scanf("%u %lu", &frames, &calls) == 2) {
        descend(frames, calls);
        puts("done");
    }
    return 0;
}
