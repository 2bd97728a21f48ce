/* Stacks of every shape that C makes. Built many times over, by several compilers and with several options. */
#define _GNU_SOURCE
#include "shapes.h"

#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "workload.h"

static void use(void* memory) {
    __asm__ volatile("" ::"r"(memory) : "memory");
}

STACK_NOINLINE static long descends(int depth, long carried) {
    long room[8];
    use(room);
    if (depth == 0)
        STACK_ALLOCATE("recursion", malloc(size_bytes));
    else
        carried += descends(depth - 1, carried ^ room[0]);
    return carried + room[1];
}

STACK_NOINLINE static void has_alloca(size_t room_bytes) {
    use(alloca(room_bytes));
    STACK_ALLOCATE("alloca", malloc(size_bytes));
}

STACK_NOINLINE static void has_aligned_locals(void) {
    _Alignas(64) char room[256];
    use(room);
    STACK_ALLOCATE("locals aligned to 64 bytes", malloc(size_bytes));
}

STACK_NOINLINE static void has_aligned_locals_and_alloca(size_t room_bytes) {
    _Alignas(64) char room[256];
    use(room);
    use(alloca(room_bytes));
    STACK_ALLOCATE("aligned locals and alloca", malloc(size_bytes));
    use(room);
}

STACK_NOINLINE static void has_a_large_frame(void) {
    char room[20000];
    use(room);
    STACK_ALLOCATE("a frame above 8 KB", malloc(size_bytes));
    has_alloca(100);
    has_aligned_locals_and_alloca(100);
}

STACK_NOINLINE static void has_stack_arguments(long a, long b, long c, long d, long e, long f, long g, long h) {
    long sum = a + b + c + d + e + f + g * h;
    use(&sum);
    STACK_ALLOCATE("arguments on the stack", malloc(size_bytes));
    use(&sum);
}

static int times_compared;

static int compares(const void* left, const void* right) {
    if (++times_compared % 7 == 1 && times_compared < 20) STACK_ALLOCATE("callback of qsort", malloc(size_bytes));
    return *(const int*)left - *(const int*)right;
}

STACK_NOINLINE static void calls_back(void) {
    times_compared = 0;
    int numbers[] = {5, 3, 9, 1, 8, 2, 7, 4, 6, 0};
    qsort(numbers, sizeof numbers / sizeof numbers[0], sizeof numbers[0], compares);
    workload_require(numbers[0] == 0, "order");
}

STACK_NOINLINE static void calls_all_functions(void) {
    char text[1100000];
    STACK_ALLOCATE("calloc", calloc(1, size_bytes));
    STACK_ALLOCATE("realloc", realloc(NULL, size_bytes));
    STACK_ALLOCATE("aligned_alloc", aligned_alloc(64, size_bytes));
    void* aligned = NULL;
    STACK_ALLOCATE("posix_memalign", posix_memalign(&aligned, 64, size_bytes) == 0 ? aligned : NULL);
    STACK_ALLOCATE("strdup", (memset(text, 'x', size_bytes - 1), text[size_bytes - 1] = 0, strdup(text)));
    STACK_ALLOCATE("strndup", (memset(text, 'x', size_bytes), strndup(text, size_bytes - 1)));
}

STACK_NOINLINE static void is_called_last(long* sum) {
    STACK_ALLOCATE("a tail call", malloc(size_bytes));
    *sum += 1;
}

STACK_NOINLINE static void calls_last(long* sum) {
    long room[4];
    use(room);
    *sum += room[0];
    is_called_last(sum);
}

static void on_signal(int number) {
    (void)number;
    STACK_ALLOCATE("signal handler", malloc(size_bytes));
}

static void set_handler(int number, void (*handler)(int), int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    workload_require(sigaction(number, &action, NULL) == 0, "a signal handler");
}

STACK_NOINLINE static void raises(void) {
    static char alternate_stack[65536];
    set_handler(SIGUSR1, on_signal, 0);
    raise(SIGUSR1);
    const stack_t stack = {.ss_sp = alternate_stack, .ss_size = sizeof alternate_stack};
    workload_require(sigaltstack(&stack, NULL) == 0, "an alternate stack");
    set_handler(SIGUSR1, on_signal, SA_ONSTACK);
    raise(SIGUSR1);
    STACK_KEEP_FRAME();
}

static void on_fault(int number, siginfo_t* info, void* context) {
    (void)number, (void)info;
    STACK_ALLOCATE("handler of a fault", malloc(size_bytes));
    /* mov (%rdi), %al is two bytes. */
    ((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP] += 2;
}

/* No call in it: a table of call sites alone knows nothing of it. */
STACK_NOINLINE static long faults(const char* nothing, long a, long b) {
    long room[20];
    use(room);
    __asm__ volatile("movb (%%rdi), %%al" ::"D"(nothing) : "rax", "rbx", "r12", "r13", "memory");
    return room[3] + a * b;
}

STACK_NOINLINE static void is_faulted(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    workload_require(sigaction(SIGSEGV, &action, NULL) == 0, "a signal handler");
    long sum = faults(NULL, 2, 3);
    use(&sum);
}

/* At several instructions, since a frame pointer alone leads from most of them. */
enum { VDSO_INTERRUPTIONS = 8 };

static volatile sig_atomic_t times_in_vdso;

static void on_timer(int number, siginfo_t* info, void* context) {
    (void)number, (void)info;
    const unsigned long pc = (unsigned long)((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP];
    if (times_in_vdso == VDSO_INTERRUPTIONS || pc - getauxval(AT_SYSINFO_EHDR) >= 8192) return;
    ++times_in_vdso;
    STACK_ALLOCATE("handler that interrupts the vDSO", malloc(size_bytes));
}

STACK_NOINLINE static void is_interrupted_in_the_vdso(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_timer;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    workload_require(sigaction(SIGALRM, &action, NULL) == 0, "a signal handler");
    struct itimerval timer = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &timer, NULL);
    times_in_vdso = 0;
    struct timespec now;
    while (times_in_vdso < VDSO_INTERRUPTIONS)
        clock_gettime(CLOCK_MONOTONIC, &now);
    timer = (struct itimerval){{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void* is_a_thread(void* argument) {
    STACK_ALLOCATE("start of a thread", malloc(size_bytes));
    descends(3, 1);
    return argument;
}

STACK_NOINLINE static void starts_a_thread(void) {
    pthread_t thread;
    workload_require(pthread_create(&thread, NULL, is_a_thread, NULL) == 0, "a thread");
    pthread_join(thread, NULL);
}

static void every_shape(void) {
    static const int depths[] = {0, 6, 20, 58};
    for (unsigned i = 0; i < sizeof depths / sizeof depths[0]; ++i)
        descends(depths[i], 1);
    has_alloca(1000);
    has_aligned_locals();
    has_aligned_locals_and_alloca(1000);
    has_a_large_frame();
    has_stack_arguments(1, 2, 3, 4, 5, 6, 7, 8);
    calls_back();
    calls_all_functions();
    long sum = 0;
    calls_last(&sum);
    raises();
    is_faulted();
    starts_a_thread();
    if (stack_shapes_of_cxx) stack_shapes_of_cxx();
    is_interrupted_in_the_vdso();
}

/* Twice: what a tracer loads only when it is needed is there the second time. */
const struct workload_case workload_cases[] = {{"first", every_shape}, {"second", every_shape}, {NULL, NULL}};
