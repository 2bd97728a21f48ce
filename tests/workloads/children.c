/* Processes that make others. `children COUNT` prints `ready PID`, then does what each line on stdin says and answers
 * with a line of JSON:
 *   fork      COUNT children, which allocate, free a part and end
 *   chain     a child that execs itself COUNT times, each image with its allocations
 *   vfork     COUNT children made by vfork that exec and then do as those of fork
 *   daemon    a child that ends at once, whose child does as those of fork
 *   run       COUNT workers, made before `ready`, allocate and free without end
 *   another   one more worker, which stands still
 *   pause     the workers stand still; what each did so far
 *   born DIR  COUNT children that are born in the control group DIR and do as those of fork
 *   reuse     as fork, one after the other, all with the same process id
 *   quit 0    it ends
 * What a child of fork does, and an image of the chain: children_malloc ten times 100 bytes, three of which are freed.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "workload.h"

enum { MOST_WORKERS = 64, PAUSED = 0, RUNNING = 1 };

struct worker {
    pid_t pid;
    uint64_t allocations;
    uint64_t frees;
    int stands_still;
    int has_window; /* it was forked while the others were traced */
};

struct shared {
    int state;
    struct worker workers[MOST_WORKERS];
};

static struct shared* shared;
static int workers;
static void* volatile sink;

CALL_SITE static void* children_malloc(size_t size_bytes) {
    return malloc(size_bytes);
}

static void allocate_and_free(void) {
    void* volatile blocks[10];
    for (int i = 0; i < 10; ++i)
        blocks[i] = children_malloc(100);
    for (int i = 0; i < 3; ++i)
        free(blocks[i]);
}

static void work(struct worker* worker) {
    for (;;) {
        while (__atomic_load_n(&shared->state, __ATOMIC_ACQUIRE) != RUNNING) {
            __atomic_store_n(&worker->stands_still, 1, __ATOMIC_RELEASE);
            usleep(1000);
        }
        __atomic_store_n(&worker->stands_still, 0, __ATOMIC_RELEASE);
        sink = children_malloc(64);
        ++worker->allocations;
        /* Every 64th block is kept. */
        if (worker->allocations % 64 == 0) continue;
        free(sink);
        ++worker->frees;
    }
}

static void add_worker(int has_window) {
    workload_require(workers < MOST_WORKERS, "room for a worker");
    struct worker* worker = &shared->workers[workers++];
    worker->has_window = has_window;
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, 9);
        work(worker);
    }
    worker->pid = pid;
}

static void wait_for_all(void) {
    while (wait(NULL) > 0)
        continue;
}

static void fork_children(int count) {
    for (int i = 0; i < count; ++i)
        if (fork() == 0) {
            allocate_and_free();
            _exit(0);
        }
    wait_for_all();
}

static void exec_self(const char* role, int count) {
    char number[16];
    snprintf(number, sizeof number, "%d", count);
    execl("/proc/self/exe", "children", number, role, NULL);
    _exit(127);
}

static void fork_chain(int count) {
    if (fork() == 0) exec_self("chain", count);
    wait_for_all();
}

static void vfork_child(void) {
    if (vfork() == 0) {
        execl("/proc/self/exe", "children", "0", "leaf", NULL);
        _exit(127);
    }
}

static void vfork_children(int count) {
    for (int i = 0; i < count; ++i)
        vfork_child();
    wait_for_all();
}

static void daemonise(void) {
    int done[2];
    workload_require(pipe(done) == 0, "a pipe");
    if (fork() == 0) {
        setsid();
        if (fork() != 0) _exit(0);
        allocate_and_free();
        _exit(0);
    }
    close(done[1]);
    char byte;
    /* Ends when the daemon has ended. */
    while (read(done[0], &byte, 1) > 0)
        continue;
    close(done[0]);
    wait_for_all();
}

static pid_t clone_child(struct clone_args* arguments) {
    arguments->exit_signal = SIGCHLD;
    const pid_t pid = (pid_t)syscall(SYS_clone3, arguments, sizeof *arguments);
    workload_require(pid >= 0, "clone3");
    if (pid > 0) return pid;
    allocate_and_free();
    _exit(0);
}

static void bear_children(const char* directory, int count) {
    const int fd = open(directory, O_RDONLY | O_DIRECTORY);
    workload_require(fd >= 0, "a control group");
    for (int i = 0; i < count; ++i) {
        struct clone_args arguments = {.flags = CLONE_INTO_CGROUP, .cgroup = (uint64_t)fd};
        clone_child(&arguments);
    }
    wait_for_all();
    close(fd);
}

static void reuse_pid(int count) {
    struct clone_args arguments = {0};
    pid_t pid = clone_child(&arguments);
    for (int i = 1; i < count; ++i) {
        workload_require(waitpid(pid, NULL, 0) == pid, "the end of a child");
        arguments = (struct clone_args){.set_tid = (uint64_t)(uintptr_t)&pid, .set_tid_size = 1};
        workload_require(clone_child(&arguments) == pid, "the same process id");
    }
    wait_for_all();
}

static void run(void) {
    __atomic_store_n(&shared->state, RUNNING, __ATOMIC_RELEASE);
}

static void pause_workers(void) {
    char text[8192] = "{\"workers\":{";
    __atomic_store_n(&shared->state, PAUSED, __ATOMIC_RELEASE);
    for (int i = 0; i < workers; ++i) {
        struct worker* worker = &shared->workers[i];
        while (!__atomic_load_n(&worker->stands_still, __ATOMIC_ACQUIRE))
            usleep(1000);
        const size_t length = strlen(text);
        snprintf(text + length, sizeof text - length, "%s\"%d\":{\"allocations\":%lu,\"frees\":%lu,\"has_window\":%s}",
                 i ? "," : "", worker->pid, worker->allocations, worker->frees, worker->has_window ? "true" : "false");
    }
    const size_t length = strlen(text);
    snprintf(text + length, sizeof text - length, "}}\n");
    workload_write(text, strlen(text));
}

static void do_as_told(const char* line, int count) {
    if (strcmp(line, "fork") == 0) fork_children(count);
    if (strcmp(line, "chain") == 0) fork_chain(count);
    if (strcmp(line, "vfork") == 0) vfork_children(count);
    if (strcmp(line, "daemon") == 0) daemonise();
    if (strcmp(line, "another") == 0) add_worker(1);
    if (strncmp(line, "born ", 5) == 0) bear_children(line + 5, count);
    if (strcmp(line, "reuse") == 0) reuse_pid(count);
    if (strcmp(line, "run") == 0) run();
    if (strcmp(line, "pause") == 0)
        pause_workers();
    else
        workload_write("{}\n", 3);
}

static int play_role(const char* role, int count) {
    allocate_and_free();
    if (strcmp(role, "chain") == 0 && count > 1) exec_self("chain", count - 1);
    return 0;
}

int main(int argument_count, char** arguments) {
    const int count = argument_count > 1 ? atoi(arguments[1]) : 1;
    if (argument_count > 2 && strcmp(arguments[2], "workers") != 0) return play_role(arguments[2], count);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    workload_require(shared != MAP_FAILED, "shared memory");
    if (argument_count > 2)
        while (workers < count)
            add_worker(0);
    workload_print_ready();
    char line[512];
    while (workload_read_line(line, sizeof line) && strcmp(line, "quit 0") != 0)
        do_as_told(line, count);
    for (int i = 0; i < workers; ++i)
        kill(shared->workers[i].pid, 9);
    wait_for_all();
    return 0;
}
