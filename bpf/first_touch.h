/* In a virtual machine without nested page tables the first touch of a page by the kernel costs microseconds, and the
 * tables' entries are spread over all of their pages: the targets would pay. They are touched before there is one. */
#pragma once

#include "config.h"
#include "maps.h"

#define KERNEL_PAGE_BYTES 4096
#define RECORD_HEADER_BYTES 8 /* BPF_RINGBUF_HDR_SZ */
#define MOST_PAGES (1u << 16)
/* Look-ups a page of the heads of a hash table, 256 of which are in one: so many leave one page in fifty untouched. */
#define LOOKUPS_A_PAGE 4
#define HEADS_A_PAGE 256

static long touch_blocks(u32 page, void* context) {
    u32 index = page * (KERNEL_PAGE_BYTES / sizeof(struct mt_bucket));
    if (index > live_bucket_mask) return 1;
    const volatile struct mt_bucket* bucket = bpf_map_lookup_elem(&live_blocks, &index);
    if (bucket) (void)bucket->keys[0];
    return 0;
}

static long touch_sites(u32 page, void* context) {
    u32 index = page * (KERNEL_PAGE_BYTES / sizeof(struct mt_site));
    const volatile struct mt_site* site = bpf_map_lookup_elem(&sites, &index);
    if (!site) return 1;
    (void)site->flags;
    return 0;
}

static long touch_keys(u32 number, void* context) {
    struct mt_site_key no_site = {.stack_hash = {number}};
    if (number > max_sites / HEADS_A_PAGE * LOOKUPS_A_PAGE) return 1;
    bpf_map_lookup_elem(&sites_by_key, &no_site);
    return 0;
}

/* What is discarded is skipped by the reader. */
static long touch_ring(u32 page, void* context) {
    void* record = bpf_ringbuf_reserve(&ring, KERNEL_PAGE_BYTES - RECORD_HEADER_BYTES, 0);
    if (!record) return 1;
    bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);
    return 0;
}
