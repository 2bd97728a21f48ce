/* What plugin_cases.c looks up in a plugin. */
#pragma once

#include <stddef.h>

#define PLUGIN_EXPORT __attribute__((visibility("default")))

PLUGIN_EXPORT void* plugin_allocates(size_t size_bytes);
PLUGIN_EXPORT void* plugin_reallocates(void* block, size_t size_bytes);
PLUGIN_EXPORT void plugin_frees(void* block);
