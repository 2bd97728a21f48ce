/* What both sides know of collected heaps; as abi.h, which it uses. */
#pragma once

#include "memtrace/abi.h"

/* Numbers of types are below. */
#define MT_MAX_TYPES (1u << 17)

/* Where the type of a collected object is. */
enum mt_type_source {
    MT_TYPE_NOT_KNOWN = 0, /* not yet: counted like the next one, and the user side says later whether that was right */
    MT_TYPE_FIRST_WORD =
        1, /* a number below MT_MAX_TYPES in its first 32 bits, written after the allocation: Crystal */
    MT_TYPE_NONE = 2,
};

/* Value of the map `collectors`, by tgid: what the user side found of a collected heap; owners take it over. */
struct mt_collector {
    mt_u64 collection_counter;
    mt_u32 type_source;
    mt_u32 reserved;
};

/* Key of the map `typed_sites`: the objects of one type of one call site. */
struct mt_typed_site_key {
    mt_u32 site;
    mt_u32 type;
    mt_u64 size_bytes; /* that was asked for: of what is no object the first word may look like a type */
};

MT_ASSERT_SIZE(struct mt_collector, 16);
MT_ASSERT_SIZE(struct mt_typed_site_key, 16);
