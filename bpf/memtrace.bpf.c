/* The programs; the only file with SEC("..."). Each says which event it is and calls what handles it.
 *
 *   rung       entry of a function that is waited for   return              entry of one that is not (free, operator
 * new) session    on_call_or_return                        on_call_or_return   on_call multi      on_call on_return
 * on_call perf       on_call                                  on_return           on_call
 */
#include "accounting.h"
#include "first_touch.h"
#include "go.h"
#include "kernel_types.h"
#include "system_calls.h"
#include "wanted.h"

char LICENSE[] SEC("license") = "GPL";

/* From Linux 6.13 on a program's stack is one for each cpu (bpf_enable_priv_stack, kernel/bpf/verifier.c). That is safe
 * where a program cannot be preempted by itself; programs of uprobes can, and write over each other's stack until the
 * kernel dies (seen on 7.3). A program with a tail call, even one that is never made, keeps the stack of its thread. */
#define keep_own_stack(ctx, programs)                               \
    do {                                                            \
        if (makes_tail_calls) bpf_tail_call((ctx), &(programs), 0); \
    } while (0)

SEC("uprobe")
int on_call(struct pt_regs* ctx) {
    keep_own_stack(ctx, no_programs);
    enter_function(ctx);
    return 0;
}

SEC("uprobe")
int on_return(struct pt_regs* ctx) {
    keep_own_stack(ctx, no_programs);
    return leave_function(ctx);
}

/* At return instructions of functions that may throw: there, no return probe may be. */
SEC("uprobe")
int on_return_instruction(struct pt_regs* ctx) {
    keep_own_stack(ctx, no_programs);
    return leave_by_instruction(ctx);
}

/* Functions of Go's runtime, on all rungs. */
SEC("uprobe")
int on_go_call(struct pt_regs* ctx) {
    keep_own_stack(ctx, no_programs);
    return enter_go_function(ctx);
}

SEC("uprobe")
int on_go_return(struct pt_regs* ctx) {
    keep_own_stack(ctx, no_programs);
    return leave_go_function(ctx);
}

/* Functions of their own: together they take more than the 512 bytes of stack that a program has. */
static __noinline int enter_session(struct pt_regs* ctx) {
    return enter_function(ctx);
}

static __noinline int leave_session(struct pt_regs* ctx) {
    return leave_function(ctx);
}

/* Without bpf_session_is_return(), whose signature changed in 7.0: at entry the instruction pointer is the probe's own.
 */
SEC("uprobe")
int on_call_or_return(struct pt_regs* ctx) {
    keep_own_stack(ctx, no_session_programs);
    if (instruction_pointer(ctx) == bpf_get_func_ip(ctx)) return enter_session(ctx);
    return leave_session(ctx);
}

/* syscalls:sys_enter_*, sys_exit_*: one program for all of them (system_calls.h). */
SEC("tracepoint")
int on_system_call(const struct system_call_event* event) {
    return enter_system_call(event);
}

SEC("tracepoint")
int on_system_call_return(const struct system_call_event* event) {
    return leave_system_call(event);
}

/* sched_process_exec(task, old_pid, binprm): the old address space is gone. */
SEC("tp_btf/sched_process_exec")
int on_exec(u64* ctx) {
    struct thread* thread = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, 0);
    if (thread) thread->owner = thread->calls.depth = 0;
    u32 tgid = bpf_get_current_pid_tgid() >> 32;
    struct mt_target* target = bpf_map_lookup_elem(&targets, &tgid);
    if (!target && !runs_wanted_program((struct linux_binprm*)ctx[2]) && !is_in_wanted_cgroup()) return 0;
    if (!target) target = add_target(tgid);
    if (!target) return 0;
    bpf_map_delete_elem(&collectors, &tgid);
    u32 serial = target->owner;
    end_owner(target, 0);
    if (target->armed == MT_TARGET_ARM_AT_EXEC || target->armed == MT_TARGET_FORKED) target->armed = MT_TARGET_ARMED;
    struct mt_owner* owner = find_owner(serial);
    if (emit_process_event(MT_EVENT_EXEC, serial, tgid, 0)) return 0;
    if (owner)
        count(owner, MT_COUNT_EVENTS_RING_FULL);
    else
        __sync_fetch_and_add(&owners_not_recorded, 1);
    return 0;
}

/* It was not there when its group was looked at, and did not come from another one: it was born there. */
static __always_inline void note_birth_in_cgroup(struct task_struct* task) {
    if (!is_born_in_wanted_cgroup(task)) return;
    add_target(task->tgid);
    if (!emit_process_event(MT_EVENT_BORN, 0, task->tgid, 0)) __sync_fetch_and_add(&owners_not_recorded, 1);
}

/* task_newtask(task, clone_flags): before the new task runs. A process that shares the memory of its parent is made by
 * vfork and posix_spawn. */
SEC("tp_btf/task_newtask")
int on_new_task(u64* ctx) {
    struct task_struct* task = (struct task_struct*)ctx[0];
    u64 clone_flags = ctx[1];
    if (clone_flags & CLONE_THREAD) return 0;
    u32 tgid = bpf_get_current_pid_tgid() >> 32;
    struct mt_target* target = bpf_map_lookup_elem(&targets, &tgid);
    bool is_followed = target && (target->flags & MT_TARGET_FOLLOWED);
    if ((clone_flags & CLONE_INTO_CGROUP) && !is_followed) note_birth_in_cgroup(task);
    if (!target) return 0;
    bool shares_memory = clone_flags & CLONE_VM;
    if (target->flags & MT_TARGET_FOLLOWED)
        follow_child(target, tgid, shares_memory ? 0 : address_space_of(task), task->tgid);
    if (!shares_memory || !misses_shared_children || arms_children || !is_armed) return 0;
    struct mt_owner* owner = find_owner(target->owner);
    if (owner) count(owner, MT_COUNT_CHILDREN_NOT_SEEN);
    return 0;
}

/* cgroup_attach_task(destination, path, task, threadgroup): it may be in a control group whose processes are targets.
 */
SEC("tp_btf/cgroup_attach_task")
int on_cgroup_change(u64* ctx) {
    struct task_struct* task = (struct task_struct*)ctx[2];
    if (!emit_process_event(MT_EVENT_MOVED, 0, task->tgid, 0)) __sync_fetch_and_add(&owners_not_recorded, 1);
    return 0;
}

/* cgroup_mkdir(cgroup, path): it may be one that is waited for. */
SEC("tp_btf/cgroup_mkdir")
int on_cgroup_made(u64* ctx) {
    if (!emit_cgroup_event(MT_EVENT_CGROUP_MADE, ctx[1])) __sync_fetch_and_add(&owners_not_recorded, 1);
    return 0;
}

/* cgroup_rmdir(cgroup, path) */
SEC("tp_btf/cgroup_rmdir")
int on_cgroup_gone(u64* ctx) {
    if (!emit_cgroup_event(MT_EVENT_CGROUP_GONE, ctx[1])) __sync_fetch_and_add(&owners_not_recorded, 1);
    return 0;
}

/* Run once, before there is a target, and before the ring is read for the first time. */
SEC("syscall")
int touch_tables(void* context) {
    bpf_loop(MOST_PAGES, touch_blocks, 0, 0);
    bpf_loop(MOST_PAGES, touch_sites, 0, 0);
    bpf_loop(MOST_PAGES, touch_keys, 0, 0);
    bpf_loop(MOST_PAGES, touch_ring, 0, 0);
    return 0;
}

static long abandon_top(u32 index, struct settling* context) {
    u32 top = context->thread->calls.depth - 1;
    if (top >= MT_MAX_CALLS) return 1;
    abandon_call(context->thread, context->owner, top);
    return 0;
}

/* sched_process_exit(task): a thread ends, and with the last one the process. */
SEC("tp_btf/sched_process_exit")
int on_exit(u64* ctx) {
    struct task_struct* task = bpf_get_current_task_btf();
    struct thread* thread = bpf_task_storage_get(&threads, task, 0, 0);
    struct mt_owner* owner = thread ? find_owner(thread->owner) : 0;
    if (thread && owner && owner->mm == thread->mm && is_armed) {
        struct settling context = {.thread = thread, .owner = owner};
        bpf_loop(MT_MAX_CALLS, abandon_top, &context, 0);
    }
    if (task->signal->live.counter > 0) return 0;
    u32 tgid = task->tgid;
    struct mt_target* target = bpf_map_lookup_elem(&targets, &tgid);
    if (!target) return 0;
    u32 serial = target->owner;
    u32 exit_code = task->signal->group_exit_code ? task->signal->group_exit_code : task->exit_code;
    end_owner(target, exit_code);
    bpf_map_delete_elem(&targets, &tgid);
    owner = find_owner(serial);
    if (emit_process_event(MT_EVENT_EXIT, serial, tgid, exit_code)) return 0;
    if (owner)
        count(owner, MT_COUNT_EVENTS_RING_FULL);
    else
        __sync_fetch_and_add(&owners_not_recorded, 1);
    return 0;
}
