/* A program with a pool of its own beside malloc. The truth is for a tracer that was told of the pool: what the pool
 * takes from malloc is no block of the program. */
#include <errno.h>
#include <stdlib.h>

#include "held.h"
#include "pool.h"

static volatile size_t too_large = (size_t)1 << 62;

ALLOCATES(calls_malloc, malloc(size), size, size_t size)
ALLOCATES(calls_pool_get, pool_get(pool_of_the_program, size), size, size_t size)
ALLOCATES(calls_pool_get_array, pool_get_array(count, size), count* size, size_t count, size_t size)
RESIZES(calls_pool_resize, pool_resize(pool_of_the_program, old.block, size), size, size_t size)

CALL_SITE static struct held calls_pool_get_into(size_t size, int expected) {
    void* block = NULL;
    workload_require(pool_get_into(pool_of_the_program, &block, size) == expected, "the status of pool_get_into");
    return hold(block, "calls_pool_get_into", size);
}

static void puts_back(struct held old) {
    pool_put(pool_of_the_program, old.block);
    released(old);
}

static void pool_blocks_live(void) {
    for (size_t i = 0; i < 500; ++i)
        calls_pool_get(1 + i);
    workload_require(calls_pool_get(too_large).block == NULL, "a pool_get that fails");
}

static void pool_blocks_are_put_back(void) {
    for (size_t i = 0; i < 500; ++i)
        puts_back(calls_pool_get(1 + i));
    pool_put(pool_of_the_program, NULL);
}

static void arrays_live_and_overflow(void) {
    calls_pool_get_array(3, 11);
    puts_back(calls_pool_get_array(100, 100));
    workload_require(calls_pool_get_array(too_large, 8).block == NULL, "a pool_get_array that overflows");
}

static void out_parameter_lives_and_fails(void) {
    calls_pool_get_into(40, 0);
    puts_back(calls_pool_get_into(4000, 0));
    calls_pool_get_into(too_large, ENOMEM);
}

static void resize_moves_grows_and_fails(void) {
    struct held block = calls_pool_resize((struct held){NULL, NULL, 0}, 50);
    block = calls_pool_resize(block, 200);
    block = calls_pool_resize(block, 500);
    block = calls_pool_resize(block, 200000);
    workload_require(calls_pool_resize(block, too_large).size_bytes == 200000, "a pool_resize that fails");
    block = calls_pool_resize(block, 60);
    puts_back(block);
    calls_pool_resize(calls_pool_get(300), 301);
}

static void malloc_beside_the_pool_lives(void) {
    for (size_t i = 0; i < 20; ++i)
        calls_malloc(1000 + i);
    struct held block = calls_malloc(2000);
    free(block.block);
    released(block);
}

const struct workload_case workload_cases[] = {
    {"pool_blocks_live", pool_blocks_live},
    {"pool_blocks_are_put_back", pool_blocks_are_put_back},
    {"arrays_live_and_overflow", arrays_live_and_overflow},
    {"out_parameter_lives_and_fails", out_parameter_lives_and_fails},
    {"resize_moves_grows_and_fails", resize_moves_grows_and_fails},
    {"malloc_beside_the_pool_lives", malloc_beside_the_pool_lives},
    {NULL, NULL},
};
