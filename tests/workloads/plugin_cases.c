/* A program that opens and closes a plugin with an allocator of its own: blocks of both live side by side. dlopen and
 * dlclose allocate for themselves, so the sums are a lower bound; the named sites are exact. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "held.h"
#include "plugin_library.h"

#ifndef PLUGIN
#define PLUGIN "libplugin_bump.so"
#endif

static void* library;
static __typeof__(&plugin_allocates) allocates;
static __typeof__(&plugin_reallocates) reallocates;
static __typeof__(&plugin_frees) frees;

ALLOCATES(calls_malloc, malloc(size), size, size_t size)

static void* find(const char* name) {
    void* symbol = dlsym(library, name);
    workload_require(symbol != NULL, name);
    return symbol;
}

static void open_plugin(void) {
    static char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 64);
    workload_require(length > 0, "the program's own path");
    path[length] = '\0';
    strcpy(strrchr(path, '/') + 1, PLUGIN);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    workload_require(library != NULL, path);
    *(void**)&allocates = find("plugin_allocates");
    *(void**)&reallocates = find("plugin_reallocates");
    *(void**)&frees = find("plugin_frees");
}

static struct held plugin_block(size_t size) {
    return hold(allocates(size), "plugin_allocates", size);
}

static void give_back(struct held old) {
    frees(old.block);
    released(old);
}

static void plugin_is_opened(void) {
    truth_sums_are_minimum();
    open_plugin();
}

static void blocks_of_both_live(void) {
    for (size_t i = 0; i < 20; ++i) {
        plugin_block(100 + i);
        calls_malloc(200 + i);
        give_back(plugin_block(300 + i));
        struct held own = calls_malloc(400 + i);
        free(own.block);
        released(own);
    }
    struct held block = plugin_block(500);
    block = hold_resized(block, reallocates(block.block, 50000), "plugin_reallocates", 50000);
    give_back(block);
}

static void plugin_is_closed(void) {
    workload_require(dlclose(library) == 0, "a closed plugin");
    workload_require(dlsym(RTLD_DEFAULT, "plugin_allocates") == NULL, "a plugin that is gone");
}

static void malloc_goes_on(void) {
    for (size_t i = 0; i < 20; ++i)
        calls_malloc(600 + i);
}

const struct workload_case workload_cases[] = {
    {"plugin_is_opened", plugin_is_opened},
    {"blocks_of_both_live", blocks_of_both_live},
    {"plugin_is_closed", plugin_is_closed},
    {"malloc_goes_on", malloc_goes_on},
    {"plugin_is_opened_again", plugin_is_opened},
    {"blocks_of_both_live_again", blocks_of_both_live},
    {NULL, NULL},
};
