/* The protocol of workload.h for a program that is a list of cases. */
#include "workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

unsigned workload_scale = 1;

static void list_cases(void) {
    for (const struct workload_case* one = workload_cases; one->name != NULL; ++one) {
        workload_write(one->name, strlen(one->name));
        workload_write("\n", 1);
    }
}

static const struct workload_case* find_case(const char* name) {
    for (const struct workload_case* one = workload_cases; one->name != NULL; ++one)
        if (strcmp(one->name, name) == 0) return one;
    workload_require(0, name);
    return NULL;
}

/* Obeys one line; a line that is neither `go` nor `quit` is a fault of the test. */
static void run_when_told(const struct workload_case* one) {
    char line[64];
    if (!workload_read_line(line, sizeof line)) _exit(0);
    if (strncmp(line, "quit", 4) == 0) _exit(line[4] == ' ' ? atoi(line + 5) : 0);
    workload_require(one != NULL && strcmp(line, "go") == 0, "a line `go` with a case left, or `quit`");
    one->run();
    truth_print(one->name);
}

int main(int argc, char** argv) {
    int first = 1;
    if (argc > 1 && strcmp(argv[1], "--list") == 0) {
        list_cases();
        return 0;
    }
    if (argc > 2 && strcmp(argv[1], "--scale") == 0) {
        workload_scale = (unsigned)atoi(argv[2]);
        first = 3;
    }
    if (workload_prepare != NULL) workload_prepare();
    workload_print_ready();
    if (first < argc)
        for (int i = first; i < argc; ++i)
            run_when_told(find_case(argv[i]));
    else
        for (const struct workload_case* one = workload_cases; one->name != NULL; ++one)
            run_when_told(one);
    run_when_told(NULL);
}
