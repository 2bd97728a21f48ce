/* Is a process that is no target yet to become one at its exec? By the program that it runs, under any of the names
 * that the program has, or by its control group. The user side, which knows paths, has the last word. */
#pragma once

#include "config.h"
#include "maps.h"

#define PATH_BYTES 256
#define MAX_CGROUP_DEPTH 12

/* Is the last part of `path`, which is kernel memory, one of program_names? */
__noinline int is_wanted_path(u64 path) {
    char text[PATH_BYTES] = {};
    struct mt_program_name name = {};
    long size = bpf_probe_read_kernel_str(text, sizeof text, (const void*)path);
    if (size <= 0) return false;
    u32 start = 0;
    for (u32 index = 0; index < PATH_BYTES - 1; index++) {
        if (text[index] == 0) break;
        if (text[index] == '/') start = index + 1;
    }
    bpf_probe_read_kernel_str(name.text, sizeof name.text, (const void*)(path + start));
    return bpf_map_lookup_elem(&program_names, &name) != 0;
}

/* The name that was called (a script's is its own), its interpreter, and the file that runs, whatever a symbolic link
 * to it is called. */
static __always_inline bool runs_wanted_program(struct linux_binprm* program) {
    if (!watched_names) return false;
    return is_wanted_path(number_at(&program->filename)) || is_wanted_path(number_at(&program->interp)) ||
           is_wanted_path(number_at(&program->file->f_path.dentry->d_name.name));
}

static __always_inline bool is_in_wanted_cgroup(void) {
    for (u32 index = 0; index < MT_MAX_CGROUPS; index++) {
        if (index >= watched_cgroups) return false;
        if (bpf_current_task_under_cgroup(&cgroups, index) == 1) return true;
    }
    return false;
}

/* A function of its own: at each of twelve levels the 64 turns were more than Linux 6.1 follows ("Processed 1000001
 * insn"). */
__noinline int is_watched_cgroup(u64 id) {
    for (u32 index = 0; index < MT_MAX_CGROUPS && index < watched_cgroups; index++)
        if (cgroup_ids[index] == id) return true;
    return false;
}

/* Of a task that is not the current one: its control group, or one above it, is watched. */
static __always_inline bool is_born_in_wanted_cgroup(struct task_struct* task) {
    struct cgroup_subsys_state* level = &task->cgroups->dfl_cgrp->self;
    for (u32 depth = 0; depth < MAX_CGROUP_DEPTH && level; depth++) {
        if (is_watched_cgroup(level->cgroup->kn->id)) return true;
        level = level->parent;
    }
    return false;
}
