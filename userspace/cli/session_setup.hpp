// From the options of a command line to those of a session. Uses everything that a session is made of.
#pragma once

#include <vector>

#include "base/capabilities.hpp"
#include "base/result.hpp"
#include "cli/options.hpp"
#include "kernel/session.hpp"
#include "probes/allocator_table.hpp"
#include "tracing/scope.hpp"

namespace memtrace {

/// `table` must outlive what is made with it.
SessionOptions session_options(const Options& options, const AllocatorTable& table);
ScopeOptions scope_options(const Options& options);
/// The allocator functions that the user named. Errors: usage.
Result<void> fill_table(const Options& options, AllocatorTable& table);

/// What such a session goes on needing once its targets are attached; it can do without those that it does not have.
std::vector<Capability> needed_capabilities(const Options& options);

}  // namespace memtrace
