/* A plugin with an allocator of its own, which it hides: linked with one, its malloc is not the program's. */
#include "plugin_library.h"

#include <stdlib.h>

#include "workload.h"

CALL_SITE void* plugin_allocates(size_t size_bytes) {
    return malloc(size_bytes);
}

CALL_SITE void* plugin_reallocates(void* block, size_t size_bytes) {
    return realloc(block, size_bytes);
}

void plugin_frees(void* block) {
    free(block);
}
