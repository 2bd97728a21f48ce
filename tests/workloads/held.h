/* A block together with what the truth must know at its end. For workloads in C whose case is one call a function. */
#pragma once

#include "workload.h"

struct held {
    void* block;
    const char* site;
    size_t size_bytes;
};

/* No block is no allocation. */
static inline struct held hold(void* block, const char* site, size_t size_bytes) {
    if (block != NULL) truth_allocated(truth_site(site), size_bytes);
    return (struct held){block, site, size_bytes};
}

static inline void released(struct held old) {
    if (old.block != NULL) truth_freed(truth_site(old.site), old.size_bytes);
}

/* The block that a resizing function returned; NULL is a failure that keeps the old one. */
static inline struct held hold_resized(struct held old, void* block, const char* site, size_t size_bytes) {
    if (block == NULL) return old;
    released(old);
    return hold(block, site, size_bytes);
}

/* ALLOCATES(calls_malloc, malloc(size), size, size_t size) defines the call site `calls_malloc`, whose blocks have the
 * size `asked`; RESIZES the same for functions that take `old.block`. */
#define ALLOCATES(name, call, asked, ...)            \
    CALL_SITE static struct held name(__VA_ARGS__) { \
        return hold(call, #name, asked);             \
    }
#define RESIZES(name, call, asked, ...)                               \
    CALL_SITE static struct held name(struct held old, __VA_ARGS__) { \
        return hold_resized(old, call, #name, asked);                 \
    }
