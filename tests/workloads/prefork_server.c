/* A pre-forking server under load: a master that allocates nothing, and workers that accept connections from one
 * listening socket, serve a number of requests each and are replaced, as Apache's and PostgreSQL's are.
 * `prefork_server WORKERS REQUESTS_EACH` prints `ready PID`, then does what each line on stdin says and answers with a
 * line of JSON:
 *   load N   N requests are sent by clients, which allocate nothing, and served: what the workers did so far, those
 * that live by pid quit 0   it ends Of each request the worker frees what it parsed and keeps every eighth answer. */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "workload.h"

enum { MOST_WORKERS = 4096, MOST_AT_ONCE = 16, CLIENTS = 4, REQUEST_BYTES = 200, ANSWER_BYTES = 1000 };

struct figures {
    pid_t pid;
    int has_ended;
    uint64_t allocations;
    uint64_t frees;
    uint64_t live_bytes;
};

/* By number, in the order of their forks. */
static struct figures* workers;
static int worker_count;
static int listening;
static struct sockaddr_in address = {.sin_family = AF_INET};
static void* volatile kept;

CALL_SITE static char* parse_request(void) {
    return malloc(REQUEST_BYTES);
}

CALL_SITE static char* make_answer(void) {
    return calloc(1, ANSWER_BYTES);
}

static void serve(struct figures* worker, int number) {
    const int connection = accept(listening, NULL, NULL);
    char* request = parse_request();
    worker->allocations += 2;
    workload_require(read(connection, request, REQUEST_BYTES) > 0, "a request");
    char* answer = make_answer();
    free(request);
    ++worker->frees;
    const int is_kept = number % 8 == 0;
    memset(answer, 'a', ANSWER_BYTES);
    /* The client counts on it that the figures are complete when its connection ends. */
    if (is_kept) {
        kept = answer;
        worker->live_bytes += ANSWER_BYTES;
    } else {
        free(answer);
        ++worker->frees;
    }
    workload_require(write(connection, "done", 4) == 4, "an answer");
    close(connection);
}

static void fork_worker(int requests) {
    workload_require(worker_count < MOST_WORKERS, "room for a worker");
    struct figures* worker = &workers[worker_count++];
    const pid_t pid = fork();
    workload_require(pid >= 0, "fork");
    worker->pid = pid ? pid : getpid();
    if (pid) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int number = 1; number <= requests; ++number)
        serve(worker, number);
    _exit(0);
}

static void send_requests(int count) {
    char answer[8];
    for (int i = 0; i < count; ++i) {
        const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        workload_require(connect(connection, (struct sockaddr*)&address, sizeof address) == 0, "a connection");
        workload_require(write(connection, "request", 7) == 7, "a request");
        while (read(connection, answer, sizeof answer) > 0)
            continue;
        close(connection);
    }
    _exit(0);
}

static int note_end(pid_t pid) {
    for (int i = 0; i < worker_count; ++i)
        if (workers[i].pid == pid) return workers[i].has_ended = 1;
    return 0;
}

/* Replaces workers until all clients have ended. */
static void load(int count, int requests_each) {
    for (int i = 0; i < CLIENTS; ++i)
        if (fork() == 0) send_requests(count / CLIENTS);
    for (int clients = CLIENTS; clients > 0;) {
        const pid_t pid = wait(NULL);
        if (note_end(pid))
            fork_worker(requests_each);
        else
            --clients;
    }
    /* A worker whose last request that was ends by itself a moment later. */
    usleep(100000);
    for (pid_t pid = waitpid(-1, NULL, WNOHANG); pid > 0; pid = waitpid(-1, NULL, WNOHANG)) {
        note_end(pid);
        fork_worker(requests_each);
    }
}

static void print_truth(void) {
    char text[8192];
    uint64_t allocations = 0, frees = 0, live_bytes = 0, ended_bytes = 0;
    size_t length = (size_t)sprintf(text, "{\"living\":{");
    int living = 0, ended = 0;
    for (int i = 0; i < worker_count; ++i) {
        const struct figures* worker = &workers[i];
        allocations += worker->allocations;
        frees += worker->frees;
        *(worker->has_ended ? &ended_bytes : &live_bytes) += worker->live_bytes;
        ended += worker->has_ended;
        if (worker->has_ended) continue;
        length += (size_t)sprintf(text + length, "%s\"%d\":{\"live_bytes\":%lu,\"allocations\":%lu}",
                                  living++ ? "," : "", worker->pid, worker->live_bytes, worker->allocations);
    }
    length += (size_t)sprintf(
        text + length, "},\"ended\":%d,\"allocations\":%lu,\"frees\":%lu,\"live_bytes\":%lu,\"ended_bytes\":%lu}\n",
        ended, allocations, frees, live_bytes, ended_bytes);
    workload_write(text, length);
}

static void listen_locally(void) {
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listening = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t size = sizeof address;
    workload_require(bind(listening, (struct sockaddr*)&address, size) == 0 && listen(listening, 128) == 0 &&
                         getsockname(listening, (struct sockaddr*)&address, &size) == 0,
                     "a listening socket");
}

int main(int argument_count, char** arguments) {
    workload_require(argument_count == 3, "WORKERS REQUESTS_EACH");
    const int requests_each = atoi(arguments[2]);
    workers = mmap(NULL, MOST_WORKERS * sizeof *workers, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    workload_require(workers != MAP_FAILED && atoi(arguments[1]) <= MOST_AT_ONCE, "shared memory");
    listen_locally();
    while (worker_count < atoi(arguments[1]))
        fork_worker(requests_each);
    workload_print_ready();
    char line[64];
    while (workload_read_line(line, sizeof line) && strcmp(line, "quit 0") != 0) {
        load(atoi(line + 5), requests_each);
        print_truth();
    }
    for (int i = 0; i < worker_count; ++i)
        if (!workers[i].has_ended) kill(workers[i].pid, SIGKILL);
    while (wait(NULL) > 0)
        continue;
    return 0;
}
