// What a format is: a writer of records to a stream. Uses reports/document.hpp only; knows no terminal and no clock.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <memory>

#include "reports/document.hpp"

namespace memtrace {

/// Where the output goes. `width` 0 is not a terminal: nothing is truncated.
struct WriterOptions {
    size_t width = 0;  // columns
    bool has_colors = false;
    bool has_utf8 = true;  // else the lines of trees are drawn in ASCII
};

/// Writes records in their order. A failed write is left in the stream's state for the caller to check. A writer may
/// remember what it wrote; it is not thread-safe.
class Writer {
  public:
    virtual ~Writer() = default;
    /// Writes and flushes `record`, or nothing where the format has no place for its type.
    virtual void write(const Record& record, std::ostream& stream) = 0;
};

using MakeWriter = std::unique_ptr<Writer> (*)(const WriterOptions& options);

}  // namespace memtrace
