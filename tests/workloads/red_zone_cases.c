/* An allocator of leaf functions that keep values below the stack pointer, around 5-byte nops as USDT's and ftrace's:
 * for a probe on one of these Linux 6.18 puts a call, which overwrites them. Each function returns what it has kept, so
 * that the program itself sees whether it is still that. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "held.h"

#define NOP5 ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00\n"
#define FUNCTION(name, code) \
    ".globl " name "\n.type " name ", @function\n" name ":\n" code "ret\n.size " name ", . - " name "\n"

__asm__(".text\n"
        /* The store is by a register other than the stack pointer, so that it is not to be told from its operand. */
        FUNCTION("inside_get", "lea -8(%rsp), %rax\n mov %rsi, (%rax)\n" NOP5 "mov -8(%rsp), %rax\n")
            FUNCTION("first_get", NOP5 "mov %rsi, -8(%rsp)\n" NOP5 "mov -8(%rsp), %rax\n")
                FUNCTION("inside_put", "lea -8(%rsp), %rax\n mov %rdi, (%rax)\n" NOP5 "mov -8(%rsp), %rax\n"));

/* A block of `size` bytes, which is `block`. */
void* inside_get(size_t size, void* block);
void* first_get(size_t size, void* block);
void* inside_put(void* block);

enum { BLOCKS = 400, BLOCK_SIZE = 64 };
static char memory[BLOCKS][BLOCK_SIZE];
static size_t used;

static char* next_block(void) {
    workload_require(used < BLOCKS, "enough blocks");
    return memory[used++];
}

static void* kept(void* block, void* expected) {
    workload_require(block == expected, "the value that a leaf function keeps below its stack pointer");
    return block;
}

CALL_SITE static struct held calls_inside_get(size_t size) {
    char* block = next_block();
    return hold(kept(inside_get(size, block), block), __func__, size);
}

CALL_SITE static struct held calls_first_get(size_t size) {
    char* block = next_block();
    return hold(kept(first_get(size, block), block), __func__, size);
}

static void puts_back(struct held old) {
    kept(inside_put(old.block), old.block);
    released(old);
}

static void require_no_trampoline(void) {
    static char maps[1 << 16];
    const int fd = open("/proc/self/maps", O_RDONLY);
    workload_require(fd >= 0, "open maps");
    size_t length = 0;
    for (ssize_t got = 1; got > 0; length += (size_t)got) {
        got = read(fd, maps + length, sizeof maps - 1 - length);
        workload_require(got >= 0, "read maps");
    }
    close(fd);
    maps[length] = 0;
    workload_require(strstr(maps, "[uprobes-trampoline]") == NULL, "no mapping of the kernel's for probes");
}

static void nops_inside(void) {
    for (size_t i = 0; i < BLOCKS / 4; ++i)
        calls_inside_get(1 + i);
    for (size_t i = 0; i < BLOCKS / 4; ++i)
        puts_back(calls_inside_get(1 + i));
    require_no_trampoline();
}

static void nops_first(void) {
    for (size_t i = 0; i < BLOCKS / 4; ++i)
        calls_first_get(1 + i);
    for (size_t i = 0; i < BLOCKS / 4; ++i)
        puts_back(calls_first_get(1 + i));
    require_no_trampoline();
}

const struct workload_case workload_cases[] = {
    {"nops_inside", nops_inside},
    {"nops_first", nops_first},
    {NULL, NULL},
};
