#include "pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_SIZE = 16, LARGEST_SMALL = 256, SLAB_SIZE = 1 << 16 };

struct pool {
    void* unused; /* a list through the blocks' first words; all have the size LARGEST_SMALL */
    char* slab;
    size_t slab_left;
};

static struct pool the_pool;
struct pool* const pool_of_the_program = &the_pool;

static void* with_size(char* header, size_t size) {
    if (header == NULL) return NULL;
    memcpy(header, &size, sizeof size);
    return header + HEADER_SIZE;
}

static size_t size_of(void* block) {
    size_t size;
    memcpy(&size, (char*)block - HEADER_SIZE, sizeof size);
    return size;
}

static char* take_small(struct pool* pool) {
    const size_t needed = HEADER_SIZE + LARGEST_SMALL;
    if (pool->unused != NULL) {
        char* block = pool->unused;
        memcpy(&pool->unused, block, sizeof pool->unused);
        return block - HEADER_SIZE;
    }
    if (pool->slab_left < needed) {
        pool->slab = malloc(SLAB_SIZE);
        pool->slab_left = pool->slab == NULL ? 0 : SLAB_SIZE;
        if (pool->slab == NULL) return NULL;
    }
    pool->slab_left -= needed;
    return pool->slab + pool->slab_left;
}

void* pool_get(struct pool* pool, size_t size) {
    if (size <= LARGEST_SMALL) return with_size(take_small(pool), size);
    if (size > (size_t)1 << 40) return NULL;
    return with_size(malloc(HEADER_SIZE + size), size);
}

void* pool_get_array(size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
    return pool_get(pool_of_the_program, bytes);
}

int pool_get_into(struct pool* pool, void** result, size_t size) {
    void* block = pool_get(pool, size);
    if (block == NULL) return ENOMEM;
    *result = block;
    return 0;
}

void pool_put(struct pool* pool, void* block) {
    if (block == NULL) return;
    if (size_of(block) > LARGEST_SMALL) {
        free((char*)block - HEADER_SIZE);
        return;
    }
    memcpy(block, &pool->unused, sizeof pool->unused);
    pool->unused = block;
}

void* pool_resize(struct pool* pool, void* block, size_t size) {
    if (block == NULL) return pool_get(pool, size);
    if (size > LARGEST_SMALL && size_of(block) > LARGEST_SMALL && size < (size_t)1 << 40)
        return with_size(realloc((char*)block - HEADER_SIZE, HEADER_SIZE + size), size);
    void* moved = pool_get(pool, size);
    if (moved == NULL) return NULL;
    memcpy(moved, block, size < size_of(block) ? size : size_of(block));
    pool_put(pool, block);
    return moved;
}
