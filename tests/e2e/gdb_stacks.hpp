// The stacks of one program twice: as memtrace recorded them and as gdb saw them at the same calls.
#pragma once

#include <string>
#include <vector>

#include "e2e/memtrace.hpp"

namespace memtrace::e2e {

/// A program that calls stack_marker (tests/workloads/stacks/shapes.h); it prints `ready PID` and waits for `go`.
struct MarkedProgram {
    std::string path;
    std::vector<std::string> arguments = {};
    std::vector<std::string> environment = {};
    /// How often it is told `go` and answers with a line, before it is told to quit. 0: once, and it ends by itself.
    int passes = 0;
};

/// One call of the marker.
struct MarkedStack {
    std::string shape;
    int pass = 0;
    Json gdb;   // what gdb_stacks.py prints
    Json site;  // memtrace's site that holds the block; null if there is none
};

bool has_program(const std::string& name);

/// Runs it under memtrace and gdb at once, to its end.
std::vector<MarkedStack> run_marked(const MarkedProgram& program);

/// memtrace's physical frames in the form of gdb_stacks.py: [base name of the file, offset in it].
std::vector<Json> physical_frames(const Json& site);

/// What differs between both, to the last frame of gdb's or to that of the function `last`; empty if nothing.
/// The innermost frame need only be in the same function, since marker and allocation are two calls in it. memtrace may
/// see more of the callee: strdup calls malloc.
std::string difference(const MarkedStack& stack, const std::string& last = {});

}  // namespace memtrace::e2e
