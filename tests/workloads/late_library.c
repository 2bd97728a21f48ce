/* A library that a program opens while it is traced. */
#include <stdlib.h>

void* late_malloc(size_t size_bytes);

__attribute__((noipa)) void* late_malloc(size_t size_bytes) {
    return malloc(size_bytes);
}
