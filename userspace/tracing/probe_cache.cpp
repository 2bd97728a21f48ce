#include "tracing/probe_cache.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "probes/allocators.hpp"

namespace memtrace {
namespace {

ProbedFile probe_file(int fd, const std::string& name) {
    ProbedFile probed;
    auto file = ElfFile::open(fd, name);
    if (!file) return probed;
    auto points = find_probe_points(*file);
    if (!points) {
        log_warning(points.error().what + ": " + points.error().why);
        return probed;
    }
    probed.points = std::move(points).value();
    for (const ProbePoint& point : probed.points) {
        const AllocatorFunction& function = allocator_table()[point.row];
        probed.has_heap |= function.kind == BlockKind::heap;
        const std::string family(function.family);
        if (std::find(probed.families.begin(), probed.families.end(), family) == probed.families.end())
            probed.families.push_back(family);
    }
    return probed;
}

}  // namespace

const ProbedFile& ProbeCache::find(const FileIdentity& identity, int fd, const std::string& name) {
    const auto known = files_.find(identity);
    if (known != files_.end()) return known->second;
    return files_.emplace(identity, probe_file(fd, name)).first->second;
}

const ProbedFile* ProbeCache::find_known(const FileIdentity& identity) const {
    const auto known = files_.find(identity);
    return known == files_.end() ? nullptr : &known->second;
}

}  // namespace memtrace
