/* A process whose seccomp filter kills it for the system calls that the kernel's probes make in its name (uretprobe,
 * uprobe), as a filter does that lists what is allowed. x86-64 only. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "workload.h"

enum { URETPROBE = 335, UPROBE = 336 };

void workload_prepare(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, URETPROBE, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, UPROBE, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    workload_require(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
    workload_require(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0, "a seccomp filter");
}

CALL_SITE static void* filtered_malloc(size_t size) {
    return malloc(size);
}

static void filtered_process_allocates(void) {
    for (int i = 0; i < 1000; ++i) {
        void* block = filtered_malloc(100);
        workload_require(block != NULL, "memory");
        truth_allocated(truth_site("filtered_malloc"), 100);
        if (i % 2 == 0) continue;
        free(block);
        truth_freed(truth_site("filtered_malloc"), 100);
    }
}

const struct workload_case workload_cases[] = {{"filtered_process_allocates", filtered_process_allocates},
                                               {NULL, NULL}};
