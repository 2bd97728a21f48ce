/* A chain of calls through code that no debugger has information on: functions without CFI but with frame pointers
 * (see CMakeLists.txt) and machine code that this program writes itself, as a JIT compiler does. Answers `go` with the
 * names of the chain, the innermost first; null is code without a name. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "stacks/shapes.h"
#include "workload.h"

typedef void (*function)(void);
typedef void (*calls_function)(function);

static calls_function written_code;

STACK_NOINLINE void chain_allocates(void) {
    STACK_ALLOCATE("chain", malloc(size_bytes));
}

STACK_NOINLINE void chain_is_called_back(void) {
    char room[100];
    __asm__ volatile("" ::"r"(room) : "memory");
    chain_allocates();
    STACK_KEEP_FRAME();
}

STACK_NOINLINE void chain_calls_written_code(int times) {
    if (times > 0)
        chain_calls_written_code(times - 1);
    else
        written_code(chain_is_called_back);
    STACK_KEEP_FRAME();
}

static void write_code(void) {
    /* push %rbp; mov %rsp, %rbp; call *%rdi; pop %rbp; ret */
    static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
    void* room = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    workload_require(room != MAP_FAILED, "memory for code");
    memcpy(room, code, sizeof code);
    workload_require(mprotect(room, 4096, PROT_READ | PROT_EXEC) == 0, "executable memory");
    written_code = (calls_function)room;
}

int main(void) {
    static const char names[] =
        "[\"chain_allocates\",\"chain_is_called_back\",null,\"chain_calls_written_code\","
        "\"chain_calls_written_code\",\"chain_calls_written_code\",\"main\"]\n";
    char line[16];
    write_code();
    workload_print_ready();
    if (!workload_read_line(line, sizeof line)) return 1;
    chain_calls_written_code(2);
    workload_write(names, sizeof names - 1);
    workload_read_line(line, sizeof line);
    return 0;
}
