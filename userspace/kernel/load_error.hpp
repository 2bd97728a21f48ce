// What to tell a person when the kernel refuses the programs.
#pragma once

#include <string>

#include "base/result.hpp"

namespace memtrace {

/// Keeps libbpf's messages of one load instead of printing them. One at a time: libbpf's print hook is global.
class LoadLog {
  public:
    LoadLog();
    ~LoadLog();
    LoadLog(const LoadLog&) = delete;
    LoadLog& operator=(const LoadLog&) = delete;

    /// The refusal `error_number` (positive errno) of the load in one sentence, with a way out.
    Error explain(int error_number) const;
};

}  // namespace memtrace
