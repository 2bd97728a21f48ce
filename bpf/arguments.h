/* Where a function's arguments and result are: System V AMD64 ABI, section 3.2.3. The only file that knows registers.
 */
#pragma once

#include "kernel_types.h"

/* Argument `position` (from 1) of the function whose entry was hit; 0 for position 0. */
static __always_inline u64 read_argument(const struct pt_regs* ctx, u32 position) {
    /* A switch over the fields is folded by clang into one load at a variable offset, which the verifier refuses:
     * "dereference of modified ctx ptr R7 off=104 disallowed". Reading the stack at a variable offset is allowed. */
    u64 arguments[8] = {0, ctx->di, ctx->si, ctx->dx, ctx->cx, ctx->r8, ctx->r9, 0};
    return arguments[position & 7];
}

static __always_inline u64 read_result(const struct pt_regs* ctx) {
    return ctx->ax;
}

static __always_inline u64 stack_pointer(const struct pt_regs* ctx) {
    return ctx->sp;
}

static __always_inline u64 frame_pointer(const struct pt_regs* ctx) {
    return ctx->bp;
}

static __always_inline u64 instruction_pointer(const struct pt_regs* ctx) {
    return ctx->ip;
}

/* One word of the target's memory; false if it cannot be read. */
static __always_inline bool read_word(u64 address, u64* word) {
    return bpf_probe_read_user(word, sizeof *word, (const void*)address) == 0;
}
