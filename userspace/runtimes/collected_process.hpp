// A running process with a garbage-collected heap: where it is and what the types of its objects are called. Uses
// processes, probes and the other files of this folder.
#pragma once

#include <sys/types.h>

#include "base/result.hpp"
#include "processes/mappings.hpp"
#include "runtimes/boehm_heap.hpp"
#include "runtimes/crystal_types.hpp"

namespace memtrace {

/// The heap of the libgc whose code `mapping` shows. Error as for find_boehm_layout.
Result<BoehmHeap> open_boehm_heap(pid_t pid, const Mapping& mapping);

/// The heap of the first libgc that the process maps, shared or in the program. Errors: no_such_target,
/// not_privileged, no_allocator where there is none.
Result<BoehmHeap> find_boehm_heap(pid_t pid);

/// What is known of the types of one process's objects.
struct ProcessTypes {
    TypeNames names;
    bool is_crystal = false;  // objects have their types' numbers
    bool has_dump = false;    // all types that there are have names
};

/// From a dump, if there is one, and from the program that runs.
ProcessTypes find_process_types(pid_t pid, const TypeNames& dumped_names);

}  // namespace memtrace
