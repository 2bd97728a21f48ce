// How memtrace ends when it cannot go on at all: in one line and with status 1, as with every other failure. Uses the
// log's form, but no memory. Memory that cannot be had, and an exception that nobody takes (a thread that cannot be
// started), end the process with `memtrace: WHAT: WHY` on stderr, in every program that has this file, from before its
// main on. The kernel takes the probes away with it.
#pragma once

namespace memtrace {

/// Descriptors 0, 1 and 2 are open from now on, so that no other file comes to be one of them. One that was closed can
/// be neither read nor written in earnest: writing to standard output fails, as it should.
void reserve_standard_streams();

}  // namespace memtrace
