/* Counts how often each probe of the test is hit: with argument 1 NULL or not, at functions' entries and at the places
 * that were chosen for probes. */
#include "kernel_types.h"

/* hits_test.cpp has the same figures. */
#define MAX_ROWS 1024

char LICENSE[] SEC("license") = "GPL";

__u64 entry_hits[MAX_ROWS];
__u64 entry_nulls[MAX_ROWS];
__u64 place_hits[MAX_ROWS];
__u64 place_nulls[MAX_ROWS];

SEC("uprobe")
int on_entry(struct pt_regs* ctx) {
    const u64 row = bpf_get_attach_cookie(ctx) % MAX_ROWS;
    __sync_fetch_and_add(&entry_hits[row], 1);
    if (ctx->di == 0) __sync_fetch_and_add(&entry_nulls[row], 1);
    return 0;
}

SEC("uprobe")
int on_place(struct pt_regs* ctx) {
    const u64 row = bpf_get_attach_cookie(ctx) % MAX_ROWS;
    __sync_fetch_and_add(&place_hits[row], 1);
    if (ctx->di == 0) __sync_fetch_and_add(&place_nulls[row], 1);
    return 0;
}

SEC("uprobe")
int on_return(struct pt_regs* ctx) {
    return 0;
}
