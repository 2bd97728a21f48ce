/* The C function of chain.go. */
#include <stdlib.h>

static void* volatile block;

void chain_allocates(void) {
    block = malloc(1000001);
}
