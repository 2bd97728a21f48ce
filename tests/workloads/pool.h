/* A pool on top of malloc, as a program may have one: what `--alloc` and `--free` are for. Small blocks are cut from
 * slabs that are never given back, large ones are malloc's own. */
#pragma once

#include <stddef.h>

struct pool;

extern struct pool* const pool_of_the_program;

/* NULL when there is no room. */
void* pool_get(struct pool* pool, size_t size);
void* pool_get_array(size_t count, size_t size);
/* 0, and the block in *result; or an errno value. */
int pool_get_into(struct pool* pool, void** result, size_t size);
/* NULL keeps the old block. */
void* pool_resize(struct pool* pool, void* block, size_t size);
void pool_put(struct pool* pool, void* block);
