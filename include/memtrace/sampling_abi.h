/* What one sampled block stands for. Both sides compute it from the same two numbers, the block's size and the sampling
 * distance that was in force, so that what a free takes away is what the allocation brought. Pure integer arithmetic;
 * uses nothing but abi.h. */
#pragma once

#include "memtrace/abi.h"

/* Sums of a session that samples are fractions: bytes in 1/256, blocks in 1/2^20. */
#define MT_SAMPLED_BYTES_SHIFT 8
#define MT_SAMPLED_BLOCKS_SHIFT 20
/* A weight is in 1/2^24. */
#define MT_WEIGHT_SHIFT 24
#define MT_WEIGHT_ONE (1ull << MT_WEIGHT_SHIFT)
/* The largest mean distance between two sampled bytes. */
#define MT_MAX_SAMPLING_MEAN_BYTES (1u << 30)

/* A mean in 16 bits: eleven digits, and five bits for how many 0 follow. */
#define MT_MEAN_DIGITS 11

/* Exact for what mt_rounded_mean returns; 0 and 1 are all blocks. */
static inline mt_u64 mt_mean_code(mt_u32 mean_bytes) {
    mt_u64 zeros = 0, digits = mean_bytes;
    for (mt_u32 step = 16; step > 0; step /= 2)
        if (digits >> (MT_MEAN_DIGITS + step - 1)) {
            digits >>= step;
            zeros += step;
        }
    return zeros << MT_MEAN_DIGITS | digits;
}

static inline mt_u32 mt_mean_of(mt_u64 code) {
    return (mt_u32)((code & ((1 << MT_MEAN_DIGITS) - 1)) << (code >> MT_MEAN_DIGITS & 31));
}

/* The mean that is in force where `mean_bytes` was asked for: less by 1/1024 at most. */
static inline mt_u32 mt_rounded_mean(mt_u32 mean_bytes) {
    return mt_mean_of(mt_mean_code(mean_bytes));
}

/* Blocks of this many means and more are all sampled: 1 - p is below 10^-13. */
#define MT_ALWAYS_SAMPLED_MEANS 32

/* exp(-x) in 1/2^32; x in 1/2^34, below MT_ALWAYS_SAMPLED_MEANS. Off by less than 10^-9. */
static inline mt_u64 mt_exponential(mt_u64 x) {
    const mt_u64 ln2 = 11908177887ull; /* in 1/2^34 */
    const mt_u64 one = 1ull << 32;
    mt_u64 halvings = x / ln2;
    mt_u64 rest = (x - halvings * ln2) >> 2;
    mt_u64 power = one;
    for (mt_u64 term = 13; term > 0; term--)
        power = one - (rest * power >> 32) / term;
    return power >> (halvings & 63);
}

/* 1 / (1 - exp(-size / mean)) in 1/2^24, right to 10^-7: how many blocks a sampled block of that size stands for. A
 * block of 0 bytes is sampled like one of 1 byte; a mean of 0 or 1 samples every block. */
static inline mt_u64 mt_sampling_weight(mt_u64 size_bytes, mt_u32 mean_bytes) {
    mt_u64 size = size_bytes ? size_bytes : 1;
    mt_u64 mean = mean_bytes;
    if (mean <= 1 || size / mean >= MT_ALWAYS_SAMPLED_MEANS) return MT_WEIGHT_ONE;
    mt_u64 x = (size / mean << 34) + (size % mean << 34) / mean;
    if (x >= 1ull << 33) return (1ull << (32 + MT_WEIGHT_SHIFT)) / ((1ull << 32) - mt_exponential(x));
    /* The series 1/x + 1/2 + x/12 - x^3/720 + x^5/30240 - ..., since 1 - exp(-x) has few digits here. */
    mt_u64 x32 = x >> 2;
    mt_u64 square = x32 * x32 >> 32;
    mt_u64 cube = square * x32 >> 32;
    mt_u64 fifth = cube * square >> 32;
    return ((mean << MT_WEIGHT_SHIFT) + size / 2) / size + MT_WEIGHT_ONE / 2 +
           (((x32 / 12) - cube / 720 + fifth / 30240) >> (32 - MT_WEIGHT_SHIFT));
}

/* The bytes that a sampled block stands for, in 1/256. Sizes up to 2^47. */
static inline mt_u64 mt_sampled_bytes(mt_u64 size_bytes, mt_u64 weight) {
    if (weight == MT_WEIGHT_ONE) return size_bytes << MT_SAMPLED_BYTES_SHIFT;
    const mt_u32 shift = MT_WEIGHT_SHIFT - MT_SAMPLED_BYTES_SHIFT;
    return (size_bytes * weight + (1ull << (shift - 1))) >> shift;
}

/* The blocks that it stands for, in 1/2^20. */
static inline mt_u64 mt_sampled_blocks(mt_u64 weight) {
    const mt_u32 shift = MT_WEIGHT_SHIFT - MT_SAMPLED_BLOCKS_SHIFT;
    return (weight + (1ull << (shift - 1))) >> shift;
}
