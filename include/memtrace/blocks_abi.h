/* Integers of a known size, and what both sides know of live blocks; as abi.h, which uses it. */
#pragma once

#ifndef __bpf__
#include <stdint.h>
typedef uint8_t mt_u8;
typedef uint16_t mt_u16;
typedef uint32_t mt_u32;
typedef uint64_t mt_u64;
#else
typedef unsigned char mt_u8;
typedef unsigned short mt_u16;
typedef unsigned int mt_u32;
typedef unsigned long long mt_u64;
#endif

#ifdef __cplusplus
#define MT_ASSERT_SIZE(type, size) static_assert(sizeof(type) == (size), #type)
#else
#define MT_ASSERT_SIZE(type, size) _Static_assert(sizeof(type) == (size), #type)
#endif

/* A block's key is one word, so that compare-and-swap claims and releases it: owner (16 bits) | address (48 bits).
 * 0 is a free slot, MT_BLOCK_BUSY one that is being written. */
#define MT_BLOCK_BUSY 1ull
#define MT_BLOCK_KEY(owner, address) (((mt_u64)(owner) << 48) | ((mt_u64)(address)&0xffffffffffffull))

/* The bucket that the block `key` can be in, modulo the number of buckets. Addresses are multiples of 16; the owner's
 * bits must reach the low ones too. */
#define MT_BUCKET_OF(key) ((mt_u32)(((((mt_u64)(key)) >> 4) ^ (((mt_u64)(key)) >> 48)) * 0x9e3779b97f4a7c15ull >> 32))

/* No address space has room for a block of more. */
#define MT_BLOCK_SIZE_BITS 48
#define MT_BLOCK_SIZE_MASK ((1ull << MT_BLOCK_SIZE_BITS) - 1)

/* Blocks of one bucket: their keys are one line of the cache. */
#define MT_BUCKET_SLOTS 8

/* A block but for its key. Value of the maps `live_overflow` and `ghosts`. */
struct mt_block {
    mt_u64 size_and_mean; /* size in bytes | code of the sampling mean << MT_BLOCK_SIZE_BITS (sampling_abi.h) */
    mt_u64 birth_ns;      /* CLOCK_MONOTONIC */
    mt_u32 site;
    mt_u32 forks; /* that its owner had made when it was born: later ones have copied it */
};

/* Value of the map `live_blocks`: what is looked at for a block that is not there is one line of the cache, and a block
 * that is takes one more. Read a key, the block, and the key again. */
struct mt_bucket {
    mt_u64 keys[MT_BUCKET_SLOTS];
    struct mt_block blocks[MT_BUCKET_SLOTS];
};

/* Key of the map `ghosts`: a block that its owner gave back, and that children hold which forked before. */
struct mt_ghost_key {
    mt_u64 block; /* MT_BLOCK_KEY */
    mt_u32 forks; /* that the owner had made when it gave the block back; or MT_GHOST_OF_MANY */
    mt_u32 reserved;
};

/* mt_ghost_key.forks of an entry that says only that there is a ghost of more than MT_GHOST_TRIES forks. */
#define MT_GHOST_OF_MANY 0xffffffffu
/* Forks after the child's own in which the kernel side looks for a ghost. */
#define MT_GHOST_TRIES 8

/* Value of the map `inherited_frees`, whose key is MT_BLOCK_KEY of the child: it gave back what it may have inherited.
 */
struct mt_inherited_free {
    mt_u32 forks; /* that the child had made then: they still have the block */
    mt_u32 reserved;
};

MT_ASSERT_SIZE(struct mt_block, 24);
MT_ASSERT_SIZE(struct mt_bucket, 256);
MT_ASSERT_SIZE(struct mt_ghost_key, 16);
MT_ASSERT_SIZE(struct mt_inherited_free, 8);
