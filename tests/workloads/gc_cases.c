/* libgc's functions, each at a call site of its own. What is kept is in a static table, where the collector finds it.
 */
#include <gc/gc.h>
#include <gc/gc_inline.h>

#include "workload.h"

enum { KEPT = 4000, MANY = 1000 };

void* kept[KEPT]; /* not static: what nobody reads is left out */
static int kept_count;
static struct site_truth* truth_of[KEPT];

static void keep(const char* function, void* block, size_t size_bytes) {
    workload_require(block != NULL && kept_count < KEPT, "a block of the collector");
    truth_of[kept_count] = truth_site(function);
    truth_allocated(truth_of[kept_count], size_bytes);
    kept[kept_count++] = block;
}

void workload_prepare(void) {
    GC_INIT();
}

CALL_SITE static void gc_mallocs(void) {
    for (int i = 0; i < MANY; ++i)
        keep("gc_mallocs", GC_malloc(100), 100);
}

CALL_SITE static void gc_mallocs_atomic(void) {
    for (int i = 0; i < 50; ++i)
        keep("gc_mallocs_atomic", GC_malloc_atomic(5000), 5000);
}

CALL_SITE static void gc_mallocs_kind(void) {
    for (int i = 0; i < 10; ++i)
        keep("gc_mallocs_kind", GC_malloc_kind(40, GC_I_NORMAL), 40);
}

CALL_SITE static void gc_uncollectable(void) {
    for (int i = 0; i < 7; ++i)
        keep("gc_uncollectable", GC_malloc_uncollectable(60), 60);
}

CALL_SITE static void gc_debugs(void) {
    for (int i = 0; i < 20; ++i)
        keep("gc_debugs", GC_debug_malloc(48, "gc_cases.c", i), 48);
}

CALL_SITE static void gc_aligned(void) {
    void* block = NULL;
    keep("gc_aligned", GC_memalign(256, 300), 300);
    workload_require(GC_posix_memalign(&block, 64, 200) == 0, "GC_posix_memalign");
    keep("gc_aligned", block, 200);
}

CALL_SITE static void gc_copies(void) {
    keep("gc_copies", GC_strdup("twelve bytes"), 13);
}

CALL_SITE static void gc_frees(void) {
    for (int i = 0; i < 10; ++i) {
        truth_freed(truth_of[i], 100);
        GC_free(kept[i]);
        kept[i] = NULL;
    }
}

/* Larger than fits, and as large as before. */
CALL_SITE static void gc_reallocs(void) {
    for (int i = 10; i < 14; ++i) {
        const size_t size_bytes = i < 12 ? 4000 : 100;
        void* block = GC_realloc(kept[i], size_bytes);
        truth_freed(truth_of[i], 100);
        kept[i] = NULL;
        keep("gc_reallocs", block, size_bytes);
    }
}

static void collects(void) {
    GC_gcollect();
    GC_gcollect();
}

const struct workload_case workload_cases[] = {
    {"gc_mallocs", gc_mallocs},
    {"gc_mallocs_atomic", gc_mallocs_atomic},
    {"gc_mallocs_kind", gc_mallocs_kind},
    {"gc_uncollectable", gc_uncollectable},
    {"gc_debugs", gc_debugs},
    {"gc_aligned", gc_aligned},
    {"gc_copies", gc_copies},
    {"gc_frees", gc_frees},
    {"gc_reallocs", gc_reallocs},
    {"what_is_kept_survives", collects},
    {NULL, NULL},
};
