/* Children that share the address space (vfork) and children that have their own (fork). */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "workload.h"

static void* volatile block_of_the_child;
static void* volatile sink;

CALL_SITE static void* parent_mallocs(void) {
    truth_allocated(truth_site("parent_mallocs"), 700);
    return malloc(700);
}

CALL_SITE static void* vfork_child_mallocs(void) {
    truth_allocated(truth_site("vfork_child_mallocs"), 800);
    return malloc(800);
}

CALL_SITE static void* fork_child_mallocs(void) {
    return malloc(900);
}

static void wait_for(pid_t child) {
    int status = 1;
    workload_require(waitpid(child, &status, 0) == child && status == 0, "the end of a child");
}

/* What it allocates is the parent's, who frees a part of it. */
static void vfork_child_allocates(void) {
    const pid_t child = vfork();
    if (child == 0) {
        sink = vfork_child_mallocs();
        block_of_the_child = vfork_child_mallocs();
        _exit(0);
    }
    wait_for(child);
    free(block_of_the_child);
    truth_freed(truth_site("vfork_child_mallocs"), 800);
}

/* What it allocates and frees is its own: the parent's blocks stay. */
static void fork_child_allocates_and_frees(void) {
    void* volatile block = parent_mallocs();
    const pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 100; ++i)
            sink = fork_child_mallocs();
        free(block);
        _exit(0);
    }
    wait_for(child);
    sink = parent_mallocs();
}

const struct workload_case workload_cases[] = {
    {"vfork_child_allocates", vfork_child_allocates},
    {"fork_child_allocates_and_frees", fork_child_allocates_and_frees},
    {NULL, NULL},
};
