/* Threads that exist before `ready`, because starting one allocates: parked until the case has work for them. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

enum { WORKLOAD_MAX_THREADS = 16 };

/* Starts `count` threads; call it in workload_prepare. */
void threads_start(int count);
/* As threads_start for a program that never calls threads_exit: what that needs is not loaded. */
void threads_start_without_unwinder(int count);
/* Runs `work(index)` on each of the first `count` threads and returns when all have returned from it or have ended. */
void threads_run(int count, void (*work)(int index));
/* As pthread_exit on the calling thread, of which threads_run then knows. */
void threads_exit(void) __attribute__((noreturn));

#ifdef __cplusplus
}
#endif
