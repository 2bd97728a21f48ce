#include "e2e/check_cases.hpp"

#include "catch.hpp"

namespace memtrace::e2e {

void check_cases(const CaseRun& run, const std::string& rung) {
    INFO(run.program << " on rung " << rung);
    Workload workload(run.program, run.cases, run.environment);
    std::vector<std::string> arguments = run.options;
    for (const std::string& argument : on_demand(rung, workload.pid()))
        arguments.push_back(argument);
    Memtrace memtrace(arguments);
    memtrace.wait_attached();
    const size_t count = run.cases.empty() ? cases_of(run.program).size() : run.cases.size();
    Json truth;
    for (size_t i = 0; i < count; ++i) {
        truth = workload.go();
        if (!run.has_one_report || i + 1 == count) check_truth(truth, memtrace.report());
    }
    const MemtraceEnd end = memtrace.stop();
    CHECK(end.status == 0);
    check_truth(truth, end.final_report());
    CHECK(workload.quit(7) == 7);
}

}  // namespace memtrace::e2e
