/* The truth of workload.h, without an allocation: static tables, read(2) and write(2). */
#include "workload.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_SITES = 64, MAX_FIGURES = 16, TEXT_SIZE = 16384 };

struct figure {
    const char* name;
    int64_t amount;
};
static struct figure figures[MAX_FIGURES];

static struct site_truth sites[MAX_SITES];
static struct site_truth elsewhere = {.function = NULL};
static int sites_lock;
static uint64_t unknown_frees, abandoned, mapped_bytes, unmapped_bytes;
static uint64_t reserved_bytes, file_bytes, shared_bytes, discarded_bytes;
static bool sums_are_minimum, unknown_frees_are_minimum;

static char text[TEXT_SIZE];
static size_t text_length;

static uint64_t load(const uint64_t* figure) {
    return __atomic_load_n(figure, __ATOMIC_SEQ_CST);
}

static void add(uint64_t* figure, uint64_t amount) {
    __atomic_fetch_add(figure, amount, __ATOMIC_SEQ_CST);
}

static struct site_truth* find_or_add(const char* function) {
    for (int i = 0; i < MAX_SITES; ++i) {
        if (sites[i].function == NULL) sites[i].function = function;
        if (strcmp(sites[i].function, function) == 0) return &sites[i];
    }
    workload_require(0, "a free slot in the table of sites");
    return NULL;
}

struct site_truth* truth_site(const char* function) {
    if (function == NULL) return &elsewhere;
    while (__atomic_exchange_n(&sites_lock, 1, __ATOMIC_ACQUIRE)) {
    }
    struct site_truth* site = find_or_add(function);
    __atomic_store_n(&sites_lock, 0, __ATOMIC_RELEASE);
    return site;
}

void truth_allocated(struct site_truth* site, size_t size_bytes) {
    add(&site->allocated_bytes, size_bytes);
    add(&site->allocations, 1);
}

void truth_freed(struct site_truth* site, size_t size_bytes) {
    add(&site->freed_bytes, size_bytes);
    add(&site->frees, 1);
}

void truth_unknown_freed(uint64_t count) {
    add(&unknown_frees, count);
}

void truth_abandoned(uint64_t count) {
    add(&abandoned, count);
}

void truth_mapped(size_t size_bytes) {
    add(&mapped_bytes, size_bytes);
}

void truth_unmapped(size_t size_bytes) {
    add(&unmapped_bytes, size_bytes);
}

void truth_reserved(ptrdiff_t change_bytes) {
    add(&reserved_bytes, (uint64_t)change_bytes);
}

void truth_of_files(ptrdiff_t change_bytes) {
    add(&file_bytes, (uint64_t)change_bytes);
}

void truth_shared(ptrdiff_t change_bytes) {
    add(&shared_bytes, (uint64_t)change_bytes);
}

void truth_discarded(size_t size_bytes) {
    add(&discarded_bytes, size_bytes);
}

void truth_figure(const char* name, ptrdiff_t amount) {
    for (int i = 0; i < MAX_FIGURES; ++i) {
        if (figures[i].name == NULL) figures[i].name = name;
        if (strcmp(figures[i].name, name) != 0) continue;
        figures[i].amount += amount;
        return;
    }
    workload_require(0, "a free figure");
}

void truth_sums_are_minimum(void) {
    sums_are_minimum = true;
}

void truth_unknown_frees_are_minimum(void) {
    unknown_frees_are_minimum = true;
}

__attribute__((format(printf, 1, 2))) static void append(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text + text_length, TEXT_SIZE - text_length, format, arguments);
    va_end(arguments);
    workload_require(length >= 0 && (size_t)length < TEXT_SIZE - text_length, "room for the truth line");
    text_length += (size_t)length;
}

static void append_figures(const struct site_truth* site) {
    append("\"allocated_bytes\":%llu,\"allocations\":%llu,\"freed_bytes\":%llu,\"frees\":%llu",
           (unsigned long long)load(&site->allocated_bytes), (unsigned long long)load(&site->allocations),
           (unsigned long long)load(&site->freed_bytes), (unsigned long long)load(&site->frees));
    append(",\"live_bytes\":%llu,\"live_blocks\":%llu",
           (unsigned long long)(load(&site->allocated_bytes) - load(&site->freed_bytes)),
           (unsigned long long)(load(&site->allocations) - load(&site->frees)));
}

static struct site_truth sum_of_sites(void) {
    struct site_truth sum = elsewhere;
    for (int i = 0; i < MAX_SITES && sites[i].function != NULL; ++i) {
        sum.allocated_bytes += load(&sites[i].allocated_bytes);
        sum.allocations += load(&sites[i].allocations);
        sum.freed_bytes += load(&sites[i].freed_bytes);
        sum.frees += load(&sites[i].frees);
    }
    return sum;
}

void truth_print(const char* name) {
    const struct site_truth sum = sum_of_sites();
    text_length = 0;
    append("{\"case\":\"%s\",", name);
    append_figures(&sum);
    append(",\"sums_are_minimum\":%s", sums_are_minimum ? "true" : "false");
    append(",\"unknown_frees\":%llu,\"unknown_frees_are_minimum\":%s", (unsigned long long)load(&unknown_frees),
           unknown_frees_are_minimum ? "true" : "false");
    append(",\"abandoned_at_most\":%llu", (unsigned long long)load(&abandoned));
    append(",\"figures\":{");
    for (int i = 0; i < MAX_FIGURES && figures[i].name != NULL; ++i)
        append("%s\"%s\":%lld", i ? "," : "", figures[i].name, (long long)figures[i].amount);
    append("}");
    append(",\"reserved_bytes\":%llu,\"file_bytes\":%llu", (unsigned long long)load(&reserved_bytes),
           (unsigned long long)load(&file_bytes));
    append(",\"shared_bytes\":%llu,\"discarded_bytes\":%llu", (unsigned long long)load(&shared_bytes),
           (unsigned long long)load(&discarded_bytes));
    append(",\"mapped_bytes\":%llu,\"unmapped_bytes\":%llu,\"sites\":{", (unsigned long long)load(&mapped_bytes),
           (unsigned long long)load(&unmapped_bytes));
    for (int i = 0; i < MAX_SITES && sites[i].function != NULL; ++i) {
        append("%s\"%s\":{", i ? "," : "", sites[i].function);
        append_figures(&sites[i]);
        append("}");
    }
    append("}}\n");
    workload_write(text, text_length);
}

int workload_read_line(char* line, size_t size) {
    size_t length = 0;
    char byte;
    while (read(STDIN_FILENO, &byte, 1) == 1) {
        if (byte == '\n') {
            line[length] = '\0';
            return 1;
        }
        if (length + 1 < size) line[length++] = byte;
    }
    return 0;
}

void workload_write(const char* bytes, size_t length) {
    while (length > 0) {
        const ssize_t written = write(STDOUT_FILENO, bytes, length);
        if (written <= 0) _exit(99);
        bytes += written;
        length -= (size_t)written;
    }
}

void workload_require(int is_true, const char* what) {
    if (is_true) return;
    static const char prefix[] = "workload: failed to get ";
    if (write(STDERR_FILENO, prefix, sizeof prefix - 1) < 0 || write(STDERR_FILENO, what, strlen(what)) < 0 ||
        write(STDERR_FILENO, "\n", 1) < 0)
        _exit(99);
    _exit(98);
}

void workload_print_ready(void) {
    text_length = 0;
    append("ready %d\n", (int)getpid());
    workload_write(text, text_length);
}
