// From a file, or the vDSO, to its unwind table in the kernel. Uses kernel, unwind and processes.
#pragma once

#include "base/result.hpp"
#include "kernel/session.hpp"

namespace memtrace {

/// Loads the table that `file` names (see MT_UNWIND_EVERY_ADDRESS) of the open file `fd`, or that it has none.
Result<void> load_file_table(Session& session, const mt_file& file, int fd);
/// The vDSO is the same in all 64-bit processes, so that of this one will do.
Result<void> load_vdso_table(Session& session);

}  // namespace memtrace
