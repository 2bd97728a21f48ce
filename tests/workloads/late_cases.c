/* A C program that opens libraries when it is told to: one with a call site, one with operator new. They lie beside the
 * program. dlopen allocates for itself, so the sums are a lower bound; the named sites are exact. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "workload.h"

static void* (*late_malloc)(size_t);
static void* (*late_new)(size_t);
static void (*late_delete)(void*);
static void* volatile sink;

static void* open_beside_program(const char* name) {
    static char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 64);
    workload_require(length > 0, "the program's own path");
    path[length] = '\0';
    strcpy(strrchr(path, '/') + 1, name);
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    workload_require(library != NULL, path);
    return library;
}

static void* find(void* library, const char* name) {
    void* symbol = dlsym(library, name);
    workload_require(symbol != NULL, name);
    return symbol;
}

static void library_is_opened(void) {
    truth_sums_are_minimum();
    *(void**)&late_malloc = find(open_beside_program("liblate_library.so"), "late_malloc");
}

static void library_allocates(void) {
    for (size_t i = 0; i < 10; ++i) {
        sink = late_malloc(1000 + i);
        truth_allocated(truth_site("late_malloc"), 1000 + i);
    }
}

static void cxx_library_is_opened(void) {
    void* library = open_beside_program("liblate_library_cxx.so");
    *(void**)&late_new = find(library, "late_new");
    *(void**)&late_delete = find(library, "late_delete");
}

static void cxx_library_allocates(void) {
    for (size_t i = 0; i < 10; ++i) {
        sink = late_new(2000 + i);
        truth_allocated(truth_site("late_new"), 2000 + i);
    }
    late_delete(sink);
    truth_freed(truth_site("late_new"), 2009);
}

const struct workload_case workload_cases[] = {
    {"library_is_opened", library_is_opened},
    {"library_allocates", library_allocates},
    {"cxx_library_is_opened", cxx_library_is_opened},
    {"cxx_library_allocates", cxx_library_allocates},
    {NULL, NULL},
};
