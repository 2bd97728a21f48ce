// The mapped tables of a session. For this folder only.
#pragma once

#include "kernel/map_view.hpp"
#include "kernel/session.hpp"

namespace memtrace {

/// MT_BLOCK_KEY.
constexpr uint64_t address_mask = 0xffffffffffff;
constexpr int owner_shift = 48;

struct Session::Tables {
    MappedArray<mt_owner> owners;
    MappedArray<mt_site> sites;
    MappedArray<mt_bucket> live_blocks;
};

}  // namespace memtrace
