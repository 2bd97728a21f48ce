/* Times stack walks where they happen: at the entry of malloc, nothing, memtrace's walk and the kernel's own take
 * turns, call by call, between two readings of the clock. */
#include "unwind.h"
#include "walk_samples.h"

char LICENSE[] SEC("license") = "GPL";

/* What takes turns: the first so many of enum walk_kind. */
mt_u32 kinds = WALK_KINDS;
mt_u32 next_kind = 0;
mt_u64 turns = 0;
mt_u64 walks = 0;
mt_u64 walks_broken = 0;
struct walk_sample walk_samples[WALK_ROWS][WALK_SAMPLES];

struct {
    __uint(type, BPF_MAP_TYPE_STACK_TRACE);
    __uint(max_entries, 16384);
    __type(key, u32);
    __uint(value_size, MT_MAX_FRAMES * 8);
} kernel_stacks SEC(".maps");

/* From the thread to the number of its stack, as an allocation does it. */
static __always_inline u32 walk(const struct pt_regs* ctx, u64 caller) {
    struct thread* thread =
        bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
    if (!thread) return 0;
    thread->owner = 1;
    walk_stack(thread, caller, ctx->sp + 8, ctx->bp);
    struct mt_site_key key = {.stack_hash = {thread->hash[0], thread->hash[1]}, .owner = 1};
    u32* known = bpf_map_lookup_elem(&sites_by_key, &key);
    if (!known) bpf_map_update_elem(&sites_by_key, &key, &thread->owner, BPF_ANY);
    walks++;
    if (thread->walk_flags & ~MT_SITE_STACK_TRUNCATED) walks_broken++;
    return thread->frame_count;
}

SEC("uprobe")
int on_malloc(struct pt_regs* ctx) {
    u64 caller;
    if (!read_word(ctx->sp, &caller)) return 0;
    u32 kind = next_kind & (WALK_ROWS - 1), frame_count = 0;
    u64 begin = bpf_ktime_get_ns();
    if (kind == WALK_BY_MEMTRACE) frame_count = walk(ctx, caller);
    if (kind == WALK_BY_KERNEL) bpf_get_stackid(ctx, &kernel_stacks, BPF_F_USER_STACK);
    u64 end = bpf_ktime_get_ns();
    struct walk_sample* sample = &walk_samples[kind][turns & (WALK_SAMPLES - 1)];
    sample->duration_ns = end - begin;
    sample->frame_count = frame_count;
    next_kind = kind + 1 < kinds ? kind + 1 : 0;
    if (next_kind == 0) turns++;
    return 0;
}
