/* Programs for `memtrace -- commands NAME ...`, which allocate at once, without a handshake:
 *   commands leak STATUS           leaks 5 blocks of 1000 bytes, prints the truth, ends with STATUS
 *   commands die SIGNAL            the same, and dies by SIGNAL
 *   commands chain N               leaks, and runs itself anew until N is 0
 *   commands wait STATUS           leaks, waits for SIGINT or SIGTERM, ends with STATUS
 *   commands odd_name              names itself with bytes that are no UTF-8 and waits for `quit`
 *   commands addresses             waits for `go`, leaks, prints the address of each block, waits for `quit` */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "workload.h"

enum { BLOCKS = 5, BLOCK_SIZE = 1000 };

static void* blocks[BLOCKS];

CALL_SITE static void* command_leaks(size_t size) {
    truth_allocated(truth_site("command_leaks"), size);
    return malloc(size);
}

static void leak(void) {
    for (int i = 0; i < BLOCKS; ++i)
        blocks[i] = command_leaks(BLOCK_SIZE);
}

static int leak_and_end(const char* status) {
    leak();
    truth_print("leak");
    _exit(atoi(status));
}

static int leak_and_die(const char* signal_number) {
    leak();
    truth_print("die");
    signal(atoi(signal_number), SIG_DFL);
    raise(atoi(signal_number));
    return 99;
}

static int leak_and_run_anew(char* program, const char* count_text) {
    leak();
    const int count = atoi(count_text);
    if (count == 0) {
        truth_print("chain");
        _exit(0);
    }
    static char next[16];
    snprintf(next, sizeof next, "%d", count - 1);
    char* const arguments[] = {program, (char*)"chain", next, NULL};
    execv("/proc/self/exe", arguments);
    return 99;
}

static int leak_and_wait(const char* status) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    leak();
    truth_print("wait");
    int received = 0;
    sigwait(&set, &received);
    _exit(atoi(status));
}

static int be_oddly_named(void) {
    char line[64];
    prctl(PR_SET_NAME, "o\377d\nd\033[1m");
    workload_print_ready();
    while (workload_read_line(line, sizeof line)) {
        if (strncmp(line, "quit", 4) == 0) _exit(0);
        leak();
        truth_print("odd_name");
    }
    return 1;
}

static int print_addresses(void) {
    char line[256];
    workload_print_ready();
    while (workload_read_line(line, sizeof line)) {
        if (strncmp(line, "quit", 4) == 0) _exit(0);
        leak();
        truth_print("addresses");
        size_t length = (size_t)sprintf(line, "[");
        for (int i = 0; i < BLOCKS; ++i)
            length += (size_t)sprintf(line + length, "%s\"%p\"", i ? "," : "", blocks[i]);
        length += (size_t)sprintf(line + length, "]\n");
        workload_write(line, length);
    }
    return 1;
}

int main(int argc, char** argv) {
    const char* name = argc > 1 ? argv[1] : "";
    const char* argument = argc > 2 ? argv[2] : "0";
    if (strcmp(name, "leak") == 0) return leak_and_end(argument);
    if (strcmp(name, "die") == 0) return leak_and_die(argument);
    if (strcmp(name, "chain") == 0) return leak_and_run_anew(argv[0], argument);
    if (strcmp(name, "wait") == 0) return leak_and_wait(argument);
    if (strcmp(name, "odd_name") == 0) return be_oddly_named();
    if (strcmp(name, "addresses") == 0) return print_addresses();
    fprintf(stderr, "usage: commands leak|die|chain|wait|odd_name|addresses [ARGUMENT]\n");
    return 2;
}
