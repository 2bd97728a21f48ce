/* A library that a program opens while it is traced. */
#include <stdlib.h>

#include "workload.h"

void* late_malloc(size_t size_bytes);

CALL_SITE void* late_malloc(size_t size_bytes) {
    return malloc(size_bytes);
}
