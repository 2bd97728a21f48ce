#include "cli/probe_plan.hpp"

#include <fcntl.h>

#include <algorithm>

namespace memtrace {

bool ProcessPlan::has_allocator() const {
    return std::ranges::any_of(files, [](const PlannedFile& file) { return file.probes->has_heap; });
}

PlannedFile ProbePlan::plan(const FileIdentity& identity, Fd fd, const std::string& path) {
    const bool is_new = seen_.insert(identity).second;
    const ProbedFile& probes = cache_.find(identity, fd.get(), path);
    return {.path = path, .probes = &probes, .fd = std::move(fd), .is_new = is_new};
}

Result<ProcessPlan> ProbePlan::of_process(pid_t pid) {
    auto process = read_process(pid);
    if (!process) return std::move(process).error();
    auto mappings = read_mappings(pid);
    if (!mappings) return std::move(mappings).error();
    ProcessPlan planned{.process = std::move(process).value(), .files = {}, .unreadable = {}};
    std::set<FileIdentity> of_process;
    for (const Mapping& mapping : *mappings) {
        if (!mapping.is_executable || !mapping.has_file() || !of_process.insert(identity_of(mapping)).second) continue;
        auto fd = open_mapped_file(pid, mapping);
        if (fd)
            planned.files.push_back(plan(identity_of(mapping), std::move(fd).value(), mapping.path));
        else
            planned.unreadable.push_back(std::move(fd).error());
    }
    return planned;
}

std::vector<PlannedFile> ProbePlan::of_files(const std::vector<std::string>& paths) {
    std::vector<PlannedFile> files;
    for (const std::string& path : paths) {
        Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
        if (!fd) continue;
        const auto identity = identity_of_open_file(fd.get());
        if (identity) files.push_back(plan(*identity, std::move(fd), path));
    }
    return files;
}

}  // namespace memtrace
