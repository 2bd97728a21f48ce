/* The kernel's types that memtrace reads, and of each only the fields that it reads. CO-RE moves every access to where
 * the running kernel has the field, so this needs neither a vmlinux.h nor BTF on the build machine. */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>

/* Needs the types above. */
#include <bpf/bpf_helpers.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s64 s64;
typedef int pid_t;
/* include/uapi/linux/sched.h */
#define CLONE_VM 0x00000100
#define CLONE_THREAD 0x00010000
#define CLONE_INTO_CGROUP 0x200000000ull

#define bool _Bool
#define true 1
#define false 0

/* A uprobe program's context has this fixed layout (arch/x86/include/asm/ptrace.h); it is no CO-RE type. */
struct pt_regs {
    u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct xol_area {
    unsigned long vaddr;
};

struct uprobes_state {
    struct xol_area* xol_area;
};

/* mm_context_t, arch/x86/include/asm/mmu.h */
struct mm_context {
    void* vdso;
};

struct mm_struct {
    unsigned long start_brk; /* the data segment ... */
    unsigned long brk;       /* ... and its end */
    struct mm_context context;
    struct uprobes_state uprobes_state;
};

struct return_instance {
    unsigned long stack;
    unsigned long orig_ret_vaddr;
    struct return_instance* next;
};

struct uprobe_task {
    unsigned int depth;
    struct return_instance* return_instances;
};

typedef struct {
    int counter;
} atomic_t;

struct signal_struct {
    atomic_t live;
    int group_exit_code;
};

struct super_block {
    __u32 s_dev;
};

struct inode {
    unsigned long i_ino;
    struct super_block* i_sb;
};

struct qstr {
    const unsigned char* name;
};

struct dentry {
    struct qstr d_name;
};

struct path {
    struct dentry* dentry;
};

struct file {
    struct inode* f_inode;
    struct path f_path;
};

struct linux_binprm {
    const char* filename;
    const char* interp;
    struct file* file;
};

struct vm_area_struct {
    unsigned long vm_start;
    unsigned long vm_end;
    unsigned long vm_pgoff;
    struct file* vm_file;
};

struct cgroup_subsys_state {
    struct cgroup* cgroup;
    struct cgroup_subsys_state* parent;
};

struct kernfs_node {
    u64 id;
};

struct cgroup {
    struct cgroup_subsys_state self;
    struct kernfs_node* kn;
};

struct css_set {
    struct cgroup* dfl_cgrp;
};

struct task_struct {
    struct mm_struct* mm;
    pid_t pid;
    pid_t tgid;
    int exit_code;
    struct task_struct* real_parent;
    struct signal_struct* signal;
    unsigned long sas_ss_sp;
    unsigned long sas_ss_size;
    struct uprobe_task* utask;
    struct css_set* cgroups;
};

#pragma clang attribute pop
