// What tests ask of the records of a session with many processes.
#pragma once

#include <string>
#include <vector>

#include "e2e/memtrace.hpp"

namespace memtrace::e2e {

/// Lets a program that does what lines on its stdin say do what `line` says; its answer.
Json tell(Workload& workload, const std::string& line);
/// All reports are of sessions that lost nothing.
void check_complete(const MemtraceEnd& end);
/// The `process` records with that event.
std::vector<Json> process_records(const MemtraceEnd& end, const std::string& event);
/// The calls of `function` in the last report of each scope.
SiteSum calls_in_final_reports(const MemtraceEnd& end, const std::string& function);
/// Of `reports`, that of the process.
const Json& report_of(const std::vector<Json>& reports, pid_t pid);
/// The next `process` record of `memtrace` about that process.
Json next_of_process(Memtrace& memtrace, pid_t pid);

}  // namespace memtrace::e2e
