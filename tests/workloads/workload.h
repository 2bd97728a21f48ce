/* What every workload shares: the protocol with the test and the truth that the program keeps about itself.
 *
 * `PROGRAM [--scale N] [CASE...]` (no case: all of them; `--list` names them) prints `ready PID`, then runs one case
 * for each line `go` on stdin and answers it with the truth as one line of JSON: cumulative since `ready`, everything
 * still held. `quit N` ends it with status N. Nothing here allocates, so that the truth is the program's own calls
 * only. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A function that calls the allocator under a name that the test can rely on: never inlined, cloned or renamed. */
#ifdef __clang__
#define CALL_SITE __attribute__((noinline, optnone))
#else
#define CALL_SITE __attribute__((noipa))
#endif

/* One named call site; the figures are atomic, any thread may add to them. */
struct site_truth {
    const char* function;
    uint64_t allocated_bytes;
    uint64_t allocations;
    uint64_t freed_bytes;
    uint64_t frees;
};

/* The site of that name, made at its first use. `function` must outlive the program; NULL is the site "elsewhere",
 * which is in the sums but not among the named ones. Thread-safe. */
struct site_truth* truth_site(const char* function);
void truth_allocated(struct site_truth* site, size_t size_bytes);
void truth_freed(struct site_truth* site, size_t size_bytes);
/* A block from before `ready` was freed. */
void truth_unknown_freed(uint64_t count);
/* Allocator calls that were left by a jump, an exception or the end of a thread; the tracer may see fewer (some are
 * noticed only by the next call on the same stack) but never more. */
void truth_abandoned(uint64_t count);
/* The program's own mappings, whole pages. */
void truth_mapped(size_t size_bytes);
void truth_unmapped(size_t size_bytes);
/* ... of them: what cannot be touched, private mappings of files, shared ones; whose pages madvise has given back. */
void truth_reserved(ptrdiff_t change_bytes);
void truth_of_files(ptrdiff_t change_bytes);
void truth_shared(ptrdiff_t change_bytes);
void truth_discarded(size_t size_bytes);
/* A figure that a test asks for by its name, which must outlive the program: `amount` is added to it. */
void truth_figure(const char* name, ptrdiff_t amount);
/* The sums are a lower bound from now on: a library that the case called allocates as well. */
void truth_sums_are_minimum(void);
/* The count of unknown frees is a lower bound from now on: a thread that ends frees its cached blocks a second time. */
void truth_unknown_frees_are_minimum(void);
/* Prints the truth line under that name. */
void truth_print(const char* name);

struct workload_case {
    const char* name;
    void (*run)(void);
};

/* Defined by each program: its cases, the last one with a NULL name. */
extern const struct workload_case workload_cases[];
/* Defined by a program that must do something before `ready`: start threads, fill caches, keep blocks to free later. */
void workload_prepare(void) __attribute__((weak));
/* Multiplies how long the longer cases run. */
extern unsigned workload_scale;

/* Prints `ready PID`. */
void workload_print_ready(void);
/* Reads one line from stdin into `line` without its newline; 0 at the end of input. */
int workload_read_line(char* line, size_t size);
/* Writes all of it to stdout. */
void workload_write(const char* text, size_t length);
/* Ends the program when a step of a workload itself failed: the case is then void. */
void workload_require(int is_true, const char* what);

#ifdef __cplusplus
}
#endif
