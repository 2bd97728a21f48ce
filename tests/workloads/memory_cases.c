/* Where resident memory is: each kind of it by a number of pages that the program touches itself. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "threads.h"
#include "workload.h"

enum { PAGE = 4096, STACK_PAGES = 256, BLOCKS = 2000, BLOCK_BYTES = 5000, LARGE_BYTES = 64 << 20 };

static char* own;

/* A huge page would make pages resident that nobody touched. */
void workload_prepare(void) {
    workload_require(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0, "small pages");
    threads_start(1);
}

static void touch(char* start, size_t pages) {
    for (size_t page = 0; page < pages; ++page)
        ((volatile char*)start)[page * PAGE] = 1;
}

static char* maps(size_t pages, int flags, int fd) {
    char* start = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags, fd, 0);
    workload_require(start != MAP_FAILED, "a mapping");
    return start;
}

static void touches_own_mapping(void) {
    own = maps(1024, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    touch(own, 512);
    truth_figure("mappings_bytes", 512 * PAGE);
}

/* By a system call of its own, which no probe sees. */
CALL_SITE static char* maps_behind_the_back(size_t pages) {
    char* start =
        (char*)syscall(SYS_mmap, NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    workload_require(start != MAP_FAILED, "a mapping by a system call");
    return start;
}

static void touches_memory_behind_the_back(void) {
    char* start = maps_behind_the_back(700);
    touch(start, 700);
    truth_figure("unexplained_bytes", 700 * PAGE);
}

static void touches_shared_memory_and_files(void) {
    touch(maps(300, MAP_SHARED | MAP_ANONYMOUS, -1), 300);
    truth_figure("shared_bytes", 300 * PAGE);
    static char page[PAGE];
    const int file = memfd_create("memory_cases", MFD_CLOEXEC);
    for (int i = 0; i < 2000; ++i)
        workload_require(write(file, page, PAGE) == PAGE, "a page of a file");
    touch(maps(2000, MAP_PRIVATE, file), 2000);
    truth_figure("files_bytes", 2000 * PAGE);
    close(file);
}

static void touch_stack(int index) {
    (void)index;
    char deep[STACK_PAGES * PAGE];
    touch(deep, STACK_PAGES);
    asm volatile("" : : "r"(deep) : "memory");
}

CALL_SITE static char* allocates(size_t size) {
    char* block = malloc(size);
    workload_require(block != NULL, "a block");
    truth_allocated(truth_site("allocates"), size);
    return block;
}

static void touches_heap(void) {
    static char* blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; ++i)
        memset(blocks[i] = allocates(BLOCK_BYTES), 1, BLOCK_BYTES);
    /* Every other one is free again, and its pages stay. */
    for (int i = 0; i < BLOCKS; i += 2) {
        free(blocks[i]);
        truth_freed(truth_site("allocates"), BLOCK_BYTES);
    }
    truth_figure("allocator_retained_bytes", BLOCKS / 2 * BLOCK_BYTES);
    char* large = allocates(LARGE_BYTES);
    touch(large, 256);
    truth_figure("untouched_bytes", LARGE_BYTES - 256 * PAGE);
}

static void every_kind_is_touched(void) {
    touches_own_mapping();
    touches_memory_behind_the_back();
    touches_shared_memory_and_files();
    touches_heap();
    threads_run(1, touch_stack);
    truth_figure("stacks_bytes", STACK_PAGES * PAGE);
}

static void pages_are_given_back(void) {
    workload_require(madvise(own + 100 * PAGE, 100 * PAGE, MADV_DONTNEED) == 0, "pages given back");
    workload_require(munmap(own, 50 * PAGE) == 0, "a part unmapped");
    truth_figure("mappings_bytes", -150 * PAGE);
}

/* The child shares all that it has with its parent, and goes when the program does. */
static void a_child_shares_it(void) {
    int ends[2];
    workload_require(pipe(ends) == 0, "a pipe");
    const pid_t child = fork();
    workload_require(child >= 0, "a child");
    if (child == 0) {
        char byte;
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    close(ends[0]);
}

/* The first mapping goes when the ring buffer has been full for long. */
static void an_unmapping_after_many(void) {
    char* first = maps(64, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    for (int i = 0; i < 500; ++i)
        workload_require(munmap(maps(1, MAP_PRIVATE | MAP_ANONYMOUS, -1), PAGE) == 0, "an unmapping");
    workload_require(munmap(first, 64 * PAGE) == 0, "an unmapping");
}

/* The same by system calls of its own. */
static void an_unmapping_after_many_behind_the_back(void) {
    char* first = maps_behind_the_back(64);
    for (int i = 0; i < 500; ++i)
        workload_require(syscall(SYS_munmap, maps_behind_the_back(1), (size_t)PAGE) == 0, "an unmapping");
    workload_require(syscall(SYS_munmap, first, (size_t)64 * PAGE) == 0, "an unmapping");
}

static void one_more_is_mapped_behind_the_back(void) {
    touch(maps_behind_the_back(32), 32);
    truth_figure("mappings_bytes", 32 * PAGE);
}

const struct workload_case workload_cases[] = {
    {"every_kind_is_touched", every_kind_is_touched},
    {"pages_are_given_back", pages_are_given_back},
    {"a_child_shares_it", a_child_shares_it},
    {"an_unmapping_after_many", an_unmapping_after_many},
    {"an_unmapping_after_many_behind_the_back", an_unmapping_after_many_behind_the_back},
    {"one_more_is_mapped_behind_the_back", one_more_is_mapped_behind_the_back},
    {NULL, NULL},
};
