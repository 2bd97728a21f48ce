#include "e2e/records.hpp"

#include "catch.hpp"

namespace memtrace::e2e {

Json tell(Workload& workload, const std::string& line) {
    workload.child().write_line(line);
    return Json::parse(workload.child().read_line());
}

void check_complete(const MemtraceEnd& end) {
    for (const Json& record : end.records)
        if (record.at("type") == "report") {
            INFO(record.at("accuracy").dump());
            CHECK(record.at("accuracy").at("complete") == true);
        }
}

std::vector<Json> process_records(const MemtraceEnd& end, const std::string& event) {
    std::vector<Json> records;
    for (const Json& record : end.records)
        if (record.at("type") == "process" && record.at("event") == event) records.push_back(record);
    return records;
}

SiteSum calls_in_final_reports(const MemtraceEnd& end, const std::string& function) {
    SiteSum sum;
    for (const Json& record : end.records) {
        if (record.at("type") != "report" || record.at("final") != true) continue;
        const SiteSum of_report = sites_called(record, function);
        sum.allocations += of_report.allocations;
        sum.allocated_bytes += of_report.allocated_bytes;
        sum.live_blocks += of_report.live_blocks;
        sum.live_bytes += of_report.live_bytes;
    }
    return sum;
}

const Json& report_of(const std::vector<Json>& reports, pid_t pid) {
    for (const Json& report : reports)
        if (report.at("scope").at("pid") == pid) return report;
    throw std::runtime_error("no report of process " + std::to_string(pid));
}

Json next_of_process(Memtrace& memtrace, pid_t pid) {
    for (;;) {
        Json record = memtrace.next("process");
        if (record.at("pid") == pid) return record;
    }
}

}  // namespace memtrace::e2e
