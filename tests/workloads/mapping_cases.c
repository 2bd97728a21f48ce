/* mmap, munmap and mremap by the program itself: bytes by interval, none of them a heap block. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>

#include "workload.h"

enum { PAGE = 4096 };

CALL_SITE static char* maps(void* address, size_t size, int protection, int extra_flags) {
    void* start = mmap(address, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | extra_flags, -1, 0);
    if (start == MAP_FAILED) return NULL;
    truth_mapped((size + PAGE - 1) / PAGE * PAGE);
    return start;
}

CALL_SITE static void unmaps(char* start, size_t size, size_t pages_held) {
    workload_require(munmap(start, size) == 0, "an unmapping");
    truth_unmapped(pages_held * PAGE);
}

CALL_SITE static char* remaps(char* start, size_t old_size, size_t size, int flags) {
    void* moved = mremap(start, old_size, size, flags);
    if (moved == MAP_FAILED) return NULL;
    if (size > old_size) truth_mapped(size - old_size);
    if (size < old_size) truth_unmapped(old_size - size);
    return moved;
}

static char* maps_pages(size_t count) {
    char* start = maps(NULL, count * PAGE, PROT_READ | PROT_WRITE, 0);
    workload_require(start != NULL, "a mapping");
    return start;
}

static void mapping_lives(void) {
    maps_pages(10);
    maps(NULL, 5 * PAGE + 1, PROT_READ, 0); /* six pages */
}

static void mapping_is_unmapped(void) {
    unmaps(maps_pages(10), 10 * PAGE, 10);
    unmaps(maps_pages(2), PAGE + 1, 2); /* whole pages go */
}

static void head_is_unmapped(void) {
    unmaps(maps_pages(10), 3 * PAGE, 3);
}

static void tail_is_unmapped(void) {
    unmaps(maps_pages(10) + 6 * PAGE, 4 * PAGE, 4);
}

/* A hole may have been mapped before the attach, so unmapping it may count as an unknown free. */
static void middle_is_unmapped(void) {
    truth_unknown_frees_are_minimum();
    char* start = maps_pages(10);
    unmaps(start + 4 * PAGE, 2 * PAGE, 2);
    unmaps(start, 10 * PAGE, 8); /* holes and all */
    unmaps(maps_pages(9) + 3 * PAGE, 3 * PAGE, 3);
}

static void mapping_over_a_mapping(void) {
    char* start = maps_pages(10);
    truth_unmapped(4 * PAGE);
    workload_require(maps(start + 2 * PAGE, 4 * PAGE, PROT_READ, MAP_FIXED) != NULL, "a mapping over another");
}

static void mremap_grows_shrinks_and_moves(void) {
    char* reserve = maps_pages(64);
    unmaps(reserve + 8 * PAGE, 56 * PAGE, 56);
    workload_require(remaps(reserve, 8 * PAGE, 12 * PAGE, 0) == reserve, "a mapping that grows in place");
    workload_require(remaps(reserve, 12 * PAGE, 5 * PAGE, 0) == reserve, "a mapping that shrinks");
    workload_require(remaps(reserve, 5 * PAGE, 4096 * PAGE, MREMAP_MAYMOVE) != NULL, "a mapping that moves");
}

static void mapping_fails(void) {
    workload_require(maps(NULL, (size_t)1 << 60, PROT_READ, 0) == NULL, "a mapping that fails");
    workload_require(maps(NULL, 0, PROT_READ, 0) == NULL, "an empty mapping that fails");
    char* start = maps_pages(3);
    char* guard = maps(start + 3 * PAGE, PAGE, PROT_READ, MAP_FIXED_NOREPLACE);
    workload_require(guard == NULL || guard == start + 3 * PAGE, "a page behind the mapping");
    workload_require(remaps(start, 3 * PAGE, (size_t)1 << 60, MREMAP_MAYMOVE) == NULL, "an mremap that fails");
    workload_require(munmap(start + 1, PAGE) == -1 && errno == EINVAL, "a munmap that fails");
    workload_require(munmap(start, 0) == -1, "a munmap that fails");
}

static void reservation_counts_in_full(void) {
    maps(NULL, (size_t)1 << 30, PROT_NONE, MAP_NORESERVE);
}

const struct workload_case workload_cases[] = {
    {"mapping_lives", mapping_lives},
    {"mapping_is_unmapped", mapping_is_unmapped},
    {"head_is_unmapped", head_is_unmapped},
    {"tail_is_unmapped", tail_is_unmapped},
    {"middle_is_unmapped", middle_is_unmapped},
    {"mapping_over_a_mapping", mapping_over_a_mapping},
    {"mremap_grows_shrinks_and_moves", mremap_grows_shrinks_and_moves},
    {"mapping_fails", mapping_fails},
    {"reservation_counts_in_full", reservation_counts_in_full},
    {NULL, NULL},
};
