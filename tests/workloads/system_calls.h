/* Put before a workload, it makes its calls that change mappings system calls of its own, with no function of libc in
 * between: what no probe on libc sees. x86-64. */
#pragma once

#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((always_inline)) static inline long raw_system_call(long number, long first, long second, long third,
                                                                  long fourth, long fifth, long sixth) {
    register long r10 asm("r10") = fourth;
    register long r8 asm("r8") = fifth;
    register long r9 asm("r9") = sixth;
    long result;
    asm volatile("syscall"
                 : "=a"(result)
                 : "a"(number), "D"(first), "S"(second), "d"(third), "r"(r10), "r"(r8), "r"(r9)
                 : "rcx", "r11", "memory");
    return result;
}

__attribute__((always_inline)) static inline long own_system_call(long number, long first, long second, long third,
                                                                  long fourth, long fifth, long sixth) {
    const long result = raw_system_call(number, first, second, third, fourth, fifth, sixth);
    if ((unsigned long)result < -4095ul) return result;
    errno = (int)-result;
    return -1;
}

__attribute__((always_inline)) static inline int own_brk(uintptr_t end) {
    return (uintptr_t)raw_system_call(SYS_brk, (long)end, 0, 0, 0, 0, 0) == end ? 0 : -1;
}

__attribute__((always_inline)) static inline void* own_sbrk(intptr_t change) {
    const uintptr_t end = (uintptr_t)raw_system_call(SYS_brk, 0, 0, 0, 0, 0, 0);
    if (change != 0 && own_brk(end + (uintptr_t)change) != 0) return (void*)-1;
    return (void*)end;
}

#define mmap(address, size, protection, flags, fd, offset) \
    ((void*)own_system_call(SYS_mmap, (long)(address), (long)(size), (protection), (flags), (fd), (long)(offset)))
#define munmap(address, size) ((int)own_system_call(SYS_munmap, (long)(address), (long)(size), 0, 0, 0, 0))
#define mremap(address, old_size, size, flags) \
    ((void*)own_system_call(SYS_mremap, (long)(address), (long)(old_size), (long)(size), (flags), 0, 0))
#define mprotect(address, size, protection) \
    ((int)own_system_call(SYS_mprotect, (long)(address), (long)(size), (protection), 0, 0, 0))
#define madvise(address, size, advice) \
    ((int)own_system_call(SYS_madvise, (long)(address), (long)(size), (advice), 0, 0, 0))
#define shmat(id, address, flags) ((void*)own_system_call(SYS_shmat, (id), (long)(address), (flags), 0, 0, 0))
#define shmdt(address) ((int)own_system_call(SYS_shmdt, (long)(address), 0, 0, 0, 0, 0))
#define brk(end) own_brk((uintptr_t)(end))
#define sbrk(change) own_sbrk((intptr_t)(change))
