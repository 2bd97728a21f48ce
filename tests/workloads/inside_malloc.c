/* See seccomp(2) and, for SIGSYS's frame, arch/x86/entry: rax of the interrupted context becomes the system call's
 * result. */
#define _GNU_SOURCE
#include "inside_malloc.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "workload.h"

/* malloc adds its header and rounds up to a page. */
enum { TRAPPED_LENGTH = INSIDE_MALLOC_SIZE + 4096 };

/* volatile: the compiler takes malloc for a function that changes no variable of ours. */
static void (*volatile current_action)(void);

/* The one mmap of TRAPPED_LENGTH that the filter lets through: at the label allowed_mmap. */
extern const char allowed_mmap[];
long untrapped_mmap(void* address, size_t length, long protection, long flags, long fd, long offset);
__asm__(
    ".text\n"
    ".globl untrapped_mmap\n"
    ".type untrapped_mmap, @function\n"
    "untrapped_mmap:\n"
    ".cfi_startproc\n"
    "  mov %rcx, %r10\n"
    "  mov $9, %eax\n"
    "  syscall\n"
    ".globl allowed_mmap\n"
    ".hidden allowed_mmap\n"
    "allowed_mmap:\n"
    "  ret\n"
    ".cfi_endproc\n"
    ".size untrapped_mmap, .-untrapped_mmap\n");

static void on_trapped_mmap(int signal, siginfo_t* info, void* context) {
    (void)signal;
    (void)info;
    greg_t* registers = ((ucontext_t*)context)->uc_mcontext.gregs;
    void (*action)(void) = current_action;
    current_action = NULL;
    action();
    registers[REG_RAX] = untrapped_mmap((void*)registers[REG_RDI], (size_t)registers[REG_RSI], registers[REG_RDX],
                                        registers[REG_R10], registers[REG_R8], registers[REG_R9]);
}

static void install_handler(void) {
    struct sigaction action = {.sa_sigaction = on_trapped_mmap, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    workload_require(sigaction(SIGSYS, &action, NULL) == 0, "a handler of SIGSYS");
}

static void install_filter(void) {
    const uint64_t allowed = (uint64_t)(uintptr_t)allowed_mmap;
    const uint32_t ip = offsetof(struct seccomp_data, instruction_pointer);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 7),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TRAPPED_LENGTH, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ip),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)allowed, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ip + 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(allowed >> 32), 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
    workload_require(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
    workload_require(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "a seccomp filter");
}

void inside_malloc_prepare(void) {
    mallopt(M_MMAP_THRESHOLD, 1 << 20); /* fixed: a free of a mapped block would raise it */
    install_handler();
    install_filter();
}

CALL_SITE void* inside_malloc(void (*action)(void)) {
    current_action = action;
    void* block = malloc(INSIDE_MALLOC_SIZE);
    workload_require(block != NULL && current_action == NULL, "a signal inside malloc");
    return block;
}
