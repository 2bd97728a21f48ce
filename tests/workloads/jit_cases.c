/* Code that is made at run time and allocates; its name is in /tmp/perf-PID.map, with the pid that the process itself
 * sees. x86-64 only. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "workload.h"

enum { PAGE_SIZE = 4096, BLOCK_SIZE = 1234 };

typedef void* (*allocator)(size_t);
static allocator jitted;

/* push %rbp; mov %rsp,%rbp; mov $malloc,%rax; call *%rax; pop %rbp; ret */
static size_t write_code(unsigned char* code) {
    static const unsigned char before[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0xb8};
    static const unsigned char after[] = {0xff, 0xd0, 0x5d, 0xc3};
    allocator target = malloc;
    memcpy(code, before, sizeof before);
    memcpy(code + sizeof before, &target, sizeof target);
    memcpy(code + sizeof before + sizeof target, after, sizeof after);
    return sizeof before + sizeof target + sizeof after;
}

static void write_map(const unsigned char* code, size_t size) {
    char path[64], line[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    snprintf(line, sizeof line, "%lx %zx jit_in_a_container\n", (unsigned long)code, size);
    FILE* map = fopen(path, "w");
    workload_require(map != NULL && fputs(line, map) >= 0 && fclose(map) == 0, "a perf map in /tmp");
}

void workload_prepare(void) {
    unsigned char* code = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    workload_require(code != MAP_FAILED, "a page for code");
    const size_t size = write_code(code);
    workload_require(mprotect(code, PAGE_SIZE, PROT_READ | PROT_EXEC) == 0, "code that may run");
    write_map(code, size);
    memcpy(&jitted, &code, sizeof jitted);
}

static void made_code_allocates(void) {
    workload_require(jitted(BLOCK_SIZE) != NULL, "memory");
    truth_allocated(truth_site("jit_in_a_container"), BLOCK_SIZE);
}

const struct workload_case workload_cases[] = {{"made_code_allocates", made_code_allocates}, {NULL, NULL}};
