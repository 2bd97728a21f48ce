// What a report says of the collected heaps of a scope. Uses heap, reports and tracing.
#pragma once

#include <optional>
#include <vector>

#include "heap/figures.hpp"
#include "heap/snapshot.hpp"
#include "reports/document.hpp"
#include "reports/leak_report.hpp"
#include "reports/types.hpp"
#include "tracing/tracer.hpp"

namespace memtrace {

/// What the processes of a scope allocated in their collected heaps. Call sites with the same stack are one in it.
std::vector<NamedObjects> named_objects(const Snapshot& snapshot, const ScopeFigures& figures, const Tracer& tracer);

/// What was live before the attach, of all Go programs of a scope; none where there is none.
std::optional<BeforeAttachRecord> before_attach(const ScopeFigures& figures, const Tracer& tracer);

}  // namespace memtrace
