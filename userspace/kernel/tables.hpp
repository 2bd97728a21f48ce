// The mapped tables of a session. For this folder only.
#pragma once

#include "kernel/map_view.hpp"
#include "kernel/session.hpp"

namespace memtrace {

struct Session::Tables {
    MappedArray<mt_owner> owners;
    MappedArray<mt_site> sites;
    MappedArray<mt_block> live_blocks;
};

}  // namespace memtrace
