/* What the program itself maps, by mmap, mremap, brk and shmat: bytes by interval, none of them a heap block. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include "workload.h"

enum { PAGE = 4096 };

CALL_SITE static char* maps(void* address, size_t size, int protection, int extra_flags) {
    void* start = mmap(address, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | extra_flags, -1, 0);
    if (start == MAP_FAILED) return NULL;
    truth_mapped((size + PAGE - 1) / PAGE * PAGE);
    return start;
}

CALL_SITE static void unmaps(char* start, size_t size, size_t pages_held) {
    workload_require(munmap(start, size) == 0, "an unmapping");
    truth_unmapped(pages_held * PAGE);
}

CALL_SITE static char* remaps(char* start, size_t old_size, size_t size, int flags) {
    void* moved = mremap(start, old_size, size, flags);
    if (moved == MAP_FAILED) return NULL;
    if (size > old_size) truth_mapped(size - old_size);
    if (size < old_size) truth_unmapped(old_size - size);
    return moved;
}

static char* maps_pages(size_t count) {
    char* start = maps(NULL, count * PAGE, PROT_READ | PROT_WRITE, 0);
    workload_require(start != NULL, "a mapping");
    return start;
}

static void mapping_lives(void) {
    maps_pages(10);
    maps(NULL, 5 * PAGE + 1, PROT_READ, 0); /* six pages */
}

static void mapping_is_unmapped(void) {
    unmaps(maps_pages(10), 10 * PAGE, 10);
    unmaps(maps_pages(2), PAGE + 1, 2); /* whole pages go */
}

static void head_is_unmapped(void) {
    unmaps(maps_pages(10), 3 * PAGE, 3);
}

static void tail_is_unmapped(void) {
    unmaps(maps_pages(10) + 6 * PAGE, 4 * PAGE, 4);
}

/* A hole may have been mapped before the attach, so unmapping it may count as an unknown free. */
static void middle_is_unmapped(void) {
    truth_unknown_frees_are_minimum();
    char* start = maps_pages(10);
    unmaps(start + 4 * PAGE, 2 * PAGE, 2);
    unmaps(start, 10 * PAGE, 8); /* holes and all */
    unmaps(maps_pages(9) + 3 * PAGE, 3 * PAGE, 3);
}

static void mapping_over_a_mapping(void) {
    char* start = maps_pages(10);
    truth_unmapped(4 * PAGE);
    workload_require(maps(start + 2 * PAGE, 4 * PAGE, PROT_READ, MAP_FIXED) != NULL, "a mapping over another");
}

static void mremap_grows_shrinks_and_moves(void) {
    char* reserve = maps_pages(64);
    unmaps(reserve + 8 * PAGE, 56 * PAGE, 56);
    workload_require(remaps(reserve, 8 * PAGE, 12 * PAGE, 0) == reserve, "a mapping that grows in place");
    workload_require(remaps(reserve, 12 * PAGE, 5 * PAGE, 0) == reserve, "a mapping that shrinks");
    workload_require(remaps(reserve, 5 * PAGE, 4096 * PAGE, MREMAP_MAYMOVE) != NULL, "a mapping that moves");
}

static void mapping_fails(void) {
    workload_require(maps(NULL, (size_t)1 << 60, PROT_READ, 0) == NULL, "a mapping that fails");
    workload_require(maps(NULL, 0, PROT_READ, 0) == NULL, "an empty mapping that fails");
    char* start = maps_pages(3);
    char* guard = maps(start + 3 * PAGE, PAGE, PROT_READ, MAP_FIXED_NOREPLACE);
    workload_require(guard == NULL || guard == start + 3 * PAGE, "a page behind the mapping");
    workload_require(remaps(start, 3 * PAGE, (size_t)1 << 60, MREMAP_MAYMOVE) == NULL, "an mremap that fails");
    workload_require(munmap(start + 1, PAGE) == -1 && errno == EINVAL, "a munmap that fails");
    workload_require(munmap(start, 0) == -1, "a munmap that fails");
}

static void reservation_counts_in_full(void) {
    maps(NULL, (size_t)1 << 30, PROT_NONE, MAP_NORESERVE);
    truth_reserved(1 << 30);
    maps(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_NORESERVE);
    truth_reserved(4 * PAGE);
}

static void reads_hexadecimal(const char** text, uintptr_t* number) {
    for (*number = 0;; ++*text) {
        const char digit = **text;
        if (digit >= '0' && digit <= '9')
            *number = *number * 16 + (uintptr_t)(digit - '0');
        else if (digit >= 'a' && digit <= 'f')
            *number = *number * 16 + (uintptr_t)(digit - 'a' + 10);
        else
            return;
    }
}

/* Bytes of [start, start + size) that the kernel lists as mapped and not to be touched. */
static size_t reserved_by_the_kernel(const char* start, size_t size) {
    static char maps_text[1 << 20];
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    for (ssize_t got; (got = read(fd, maps_text + length, sizeof maps_text - 1 - length)) > 0;)
        length += (size_t)got;
    close(fd);
    maps_text[length] = '\0';
    size_t reserved = 0;
    for (const char* line = maps_text; *line; ++line) {
        uintptr_t from, to;
        reads_hexadecimal(&line, &from);
        ++line;
        reads_hexadecimal(&line, &to);
        const int is_reserved = line[1] == '-' && line[2] == '-' && line[3] == '-';
        if (from < (uintptr_t)start) from = (uintptr_t)start;
        if (to > (uintptr_t)start + size) to = (uintptr_t)start + size;
        if (is_reserved && from < to) reserved += to - from;
        while (*line && *line != '\n')
            ++line;
        if (!*line) break;
    }
    return reserved;
}

static void protects(char* start, size_t pages, int protection, ptrdiff_t reserved_pages) {
    workload_require(mprotect(start, pages * PAGE, protection) == 0, "a change of protection");
    truth_reserved(reserved_pages * PAGE);
}

static void protection_makes_and_ends_reservations(void) {
    char* start = maps(NULL, 16 * PAGE, PROT_NONE, 0);
    workload_require(start != NULL, "a reservation");
    truth_reserved(16 * PAGE);
    protects(start + 4 * PAGE, 8, PROT_READ | PROT_WRITE, -8);
    protects(start + 6 * PAGE, 2, PROT_NONE, 2);
    protects(start + 5 * PAGE, 2, PROT_READ, -1);
    workload_require(reserved_by_the_kernel(start, 16 * PAGE) == 9 * PAGE, "nine reserved pages");
    unmaps(start + 7 * PAGE, 6 * PAGE, 6); /* one reserved, four not, one reserved */
    truth_reserved(-2 * PAGE);
    truth_unmapped(2 * PAGE);
    workload_require(maps(start, 2 * PAGE, PROT_READ, MAP_FIXED) == start, "a mapping over a reservation");
    truth_reserved(-2 * PAGE);
    workload_require(reserved_by_the_kernel(start, 16 * PAGE) == 5 * PAGE, "five reserved pages");
    workload_require(mprotect(start + 1, PAGE, PROT_NONE) == -1, "a change of protection that fails");
}

/* Moves the break by `change` bytes; the whole pages between the two ends are the program's. */
static void moves_break(intptr_t change, int by_address) {
    const uintptr_t before = (uintptr_t)sbrk(0);
    if (by_address)
        workload_require(brk((void*)(before + (uintptr_t)change)) == 0, "a break");
    else
        workload_require(sbrk(change) == (void*)before, "a break that is moved");
    const uintptr_t page_before = (before + PAGE - 1) / PAGE;
    const uintptr_t page_after = (before + (uintptr_t)change + PAGE - 1) / PAGE;
    if (page_after > page_before) truth_mapped((page_after - page_before) * PAGE);
    if (page_after < page_before) truth_unmapped((page_before - page_after) * PAGE);
}

static void break_moves_up_and_down(void) {
    moves_break(10 * PAGE, 0);
    moves_break(100, 0); /* one page more */
    moves_break(200, 0); /* in that page */
    moves_break(7 * PAGE, 1);
    moves_break(-5 * PAGE, 0);
    moves_break(-2 * PAGE, 1);
    workload_require(sbrk((intptr_t)1 << 50) == (void*)-1, "a break that cannot be");
}

static char* attaches(size_t size, int* id) {
    *id = shmget(IPC_PRIVATE, size, IPC_CREAT | 0600);
    char* start = shmat(*id, NULL, 0);
    workload_require(*id >= 0 && start != (void*)-1, "a shared segment");
    shmctl(*id, IPC_RMID, NULL);
    const size_t pages = (size + PAGE - 1) / PAGE;
    truth_mapped(pages * PAGE);
    truth_shared((ptrdiff_t)(pages * PAGE));
    return start;
}

static void detaches(char* start, size_t pages_held) {
    workload_require(shmdt(start) == 0, "a segment that is detached");
    truth_unmapped(pages_held * PAGE);
    truth_shared(-(ptrdiff_t)(pages_held * PAGE));
}

static void segments_come_and_go(void) {
    int id;
    attaches(3 * PAGE + 1, &id);
    detaches(attaches(5 * PAGE, &id), 5);
    char* pierced = attaches(6 * PAGE, &id);
    unmaps(pierced + 2 * PAGE, PAGE, 1);
    truth_shared(-PAGE);
    detaches(pierced, 5);
    workload_require(shmdt(pierced) == -1, "a segment that is detached already");
    truth_unknown_frees_are_minimum(); /* it may have been there before the attach */
    workload_require(shmat(-1, NULL, 0) == (void*)-1, "a segment that is not there");
}

static void files_and_shared_memory_are_apart(void) {
    const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    workload_require(mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, file, 0) != MAP_FAILED, "a file");
    truth_mapped(2 * PAGE);
    truth_of_files(2 * PAGE);
    char* shared = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    workload_require(shared != MAP_FAILED, "shared memory");
    truth_mapped(3 * PAGE);
    truth_shared(3 * PAGE);
    unmaps(shared, PAGE, 1);
    truth_shared(-PAGE);
    close(file);
}

/* The pages are gone, the mapping is not. */
static void advice_gives_pages_back(void) {
    char* start = maps_pages(10);
    for (size_t page = 0; page < 10; ++page)
        start[page * PAGE] = 1;
    workload_require(madvise(start + 2 * PAGE, 3 * PAGE, MADV_DONTNEED) == 0, "pages given back");
    truth_discarded(3 * PAGE);
    workload_require(madvise(start + 8 * PAGE, 2 * PAGE, MADV_FREE) == 0, "pages given back if need be");
    truth_discarded(2 * PAGE);
    workload_require(madvise(start, PAGE, MADV_SEQUENTIAL) == 0, "another advice");
    workload_require(madvise(start + 1, PAGE, MADV_DONTNEED) == -1, "an advice that fails");
    workload_require(start[2 * PAGE] == 0 && start[5 * PAGE] == 1, "pages as they should be");
}

const struct workload_case workload_cases[] = {
    {"mapping_lives", mapping_lives},
    {"mapping_is_unmapped", mapping_is_unmapped},
    {"head_is_unmapped", head_is_unmapped},
    {"tail_is_unmapped", tail_is_unmapped},
    {"middle_is_unmapped", middle_is_unmapped},
    {"mapping_over_a_mapping", mapping_over_a_mapping},
    {"mremap_grows_shrinks_and_moves", mremap_grows_shrinks_and_moves},
    {"mapping_fails", mapping_fails},
    {"reservation_counts_in_full", reservation_counts_in_full},
    {"protection_makes_and_ends_reservations", protection_makes_and_ends_reservations},
    {"break_moves_up_and_down", break_moves_up_and_down},
    {"segments_come_and_go", segments_come_and_go},
    {"files_and_shared_memory_are_apart", files_and_shared_memory_are_apart},
    {"advice_gives_pages_back", advice_gives_pages_back},
    {NULL, NULL},
};
