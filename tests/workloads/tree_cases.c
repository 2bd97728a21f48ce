/* A process with children that live on: what they allocate, what they share, and what is left when one ends. The
 * truth is the parent's; tests/e2e/scopes_test.cpp knows what the children do. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "workload.h"

enum { children = 3, shared_bytes = 16 * 4096 };

static struct {
    pid_t pid;
    int orders;  /* a byte makes it allocate; the end makes it end */
    int answers; /* a byte for each */
} child_of[children];
static void* volatile sink;
static int shared_fd;

CALL_SITE static void* child_mallocs(void) {
    return malloc(1000);
}

CALL_SITE static void* parent_mallocs(void) {
    truth_allocated(truth_site("parent_mallocs"), 700);
    return malloc(700);
}

CALL_SITE static void* maps_shared(void) {
    return mmap(NULL, shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared_fd, 0);
}

/* The first one allocates 10 blocks, the second one 20, the third one 30. */
static void run_child(int number, int orders, int answers) {
    char order;
    while (read(orders, &order, 1) == 1) {
        for (int i = 0; i < 10 * (number + 1); ++i)
            sink = child_mallocs();
        sink = maps_shared();
        workload_require(write(answers, &order, 1) == 1, "a child's answer");
    }
    _exit(0);
}

static void fork_children(void) {
    shared_fd = memfd_create("tree_cases", 0);
    workload_require(shared_fd >= 0 && ftruncate(shared_fd, shared_bytes) == 0, "memfd");
    for (int number = 0; number < children; ++number) {
        int orders[2], answers[2];
        workload_require(pipe2(orders, O_CLOEXEC) == 0 && pipe2(answers, O_CLOEXEC) == 0, "pipes");
        const pid_t pid = fork();
        if (pid == 0) {
            for (int older = 0; older < number; ++older)
                close(child_of[older].orders);
            close(orders[1]);
            run_child(number, orders[0], answers[1]);
        }
        workload_require(pid > 0, "fork");
        close(orders[0]);
        child_of[number].pid = pid;
        child_of[number].orders = orders[1];
        child_of[number].answers = answers[0];
    }
}

static void all_allocate(void) {
    for (int i = 0; i < 5; ++i)
        sink = parent_mallocs();
    sink = maps_shared();
    truth_mapped(shared_bytes);
    for (int number = 0; number < children; ++number) {
        char byte = 'x';
        workload_require(write(child_of[number].orders, &byte, 1) == 1, "an order");
        workload_require(read(child_of[number].answers, &byte, 1) == 1, "an answer");
    }
}

static void second_ends(void) {
    close(child_of[1].orders);
    int status = 1;
    workload_require(waitpid(child_of[1].pid, &status, 0) == child_of[1].pid && status == 0, "the end of a child");
}

const struct workload_case workload_cases[] = {
    {"fork_children", fork_children},
    {"all_allocate", all_allocate},
    {"second_ends", second_ends},
    {NULL, NULL},
};
