/* Which allocations are sampled: a byte is, on average one in `mean_bytes`, independently of all others; a block is
 * when one of its bytes is, so with p = 1 - exp(-size / mean). Pure: no helper calls, compiled for the host by
 * tests/unit. */
#pragma once

#include "memtrace/sampling_abi.h"

/* State of one thread; all 0 at first. */
struct sampler {
    mt_u64 distance_bytes; /* to the next sampled byte; 0: the next byte is */
    mt_u32 mean_bytes;     /* with which the distance was drawn; 0: none was */
    mt_u32 reserved;
};

/* ln 2 - ln(1 + (index + 1) / 32), in 1/2^57. */
#define LOGARITHM_STEPS 32
static const mt_u64 logarithms[LOGARITHM_STEPS] = {
    95458372914480499ull, 91156107515542605ull, 86978563187198044ull, 82918711954880808ull,
    78970103636675174ull, 75126804192776100ull, 71383342084408353ull, 67734661425084013ull,
    64176080917538377ull, 60703257739554435ull, 57312155679765870ull, 53999016937040095ull,
    50760337089319073ull, 47592842813841086ull, 44493472003623966ull, 41459355977440404ull,
    38487803524228063ull, 35576286559522278ull, 32722427202337261ull, 29923986106967950ull,
    27178851906260743ull, 24485031641675464ull, 21840642071478361ull, 19243901762114031ull,
    16693123879570757ull, 14186709607682833ull, 11723142129057113ull, 9300981111878669ull,
    6918857652417347ull,  4575469628769348ull,  2269577426349092ull,  0ull,
};

/* -ln(random / 2^64) in 1/2^57, for a random that is not 0. The error is relative, below 10^-8, so that the smallest
 * results, which decide on the smallest blocks, are right as well: every term is positive. */
static inline mt_u64 exponential_of(mt_u64 random) {
    const mt_u64 ln2 = 99893036290645747ull; /* in 1/2^57 */
    mt_u64 halvings = 0;
    for (mt_u32 step = 32; step > 0; step /= 2)
        if (!(random >> (64 - step))) {
            random <<= step;
            halvings += step;
        }
    /* random / 2^63 is in [1, 2): the next point above it is 1 + (index + 1) / 32, by a share `rest` of it. */
    mt_u64 index = random >> 58 & (LOGARITHM_STEPS - 1);
    mt_u64 below = (1ull << 58) - (random & ((1ull << 58) - 1)); /* in 1/2^63 */
    mt_u64 rest = (below << 5) / (LOGARITHM_STEPS + 1 + index);  /* in 1/2^63, at most 1/33 */
    /* -ln(1 - rest) = rest + rest^2/2 + rest^3/3 + ... */
    mt_u64 rest32 = rest >> 31;
    mt_u64 square = rest32 * rest32;
    mt_u64 cube = (square >> 32) * rest32;
    mt_u64 fourth = (cube >> 32) * rest32;
    mt_u64 logarithm = (rest >> 6) + (square / 2 >> 7) + (cube / 3 >> 7) + (fourth / 4 >> 7);
    return halvings * ln2 + logarithms[index & (LOGARITHM_STEPS - 1)] + logarithm;
}

/* Draws the distance to the next sampled byte. */
static inline void sampler_draw(struct sampler* sampler, mt_u64 random, mt_u32 mean_bytes) {
    mt_u64 exponential = exponential_of(random ? random : 1);
    mt_u64 mean = mean_bytes;
    mt_u64 product = mean * (exponential >> 32) + (mean * (exponential & 0xffffffff) >> 32);
    sampler->distance_bytes = product >> 25;
    sampler->mean_bytes = mean_bytes;
}

/* Goes on by an allocation; not 0: it is sampled, and the next distance is to be drawn. */
static inline int sampler_takes(struct sampler* sampler, mt_u64 size_bytes) {
    mt_u64 size = size_bytes ? size_bytes : 1;
    if (size > sampler->distance_bytes) return 1;
    sampler->distance_bytes -= size;
    return 0;
}
