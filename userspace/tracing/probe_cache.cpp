#include "tracing/probe_cache.hpp"

#include <fmt/format.h>

#include "base/log.hpp"
#include "probes/go_program.hpp"
#include "symbols/separate_debug_file.hpp"

namespace memtrace {
namespace {

/// Of a Go program, as file offsets. What the program itself maps by package syscall is not the runtime's.
std::vector<std::pair<uint64_t, uint64_t>> go_runtime_code(const ElfFile& file) {
    std::vector<std::pair<uint64_t, uint64_t>> code;
    const auto program = GoProgram::read(file);
    if (!program) return code;
    for (const GoProgram::Function& function : program->functions_starting_with("runtime.")) {
        const auto start = file.file_offset(function.start);
        if (!start) continue;
        const uint64_t end = *start + function.end - function.start;
        if (!code.empty() && code.back().second == *start)
            code.back().second = end;
        else
            code.emplace_back(*start, end);
    }
    return code;
}

}  // namespace

ProbedFile ProbeCache::probe_file(int fd, const std::string& name) const {
    ProbedFile probed;
    auto file = ElfFile::open(fd, name);
    if (!file) return probed;
    auto found = find_probe_points(*file, table_);
    if (found && !found->allocator.has_malloc && !file->has_static_symbols()) {
        // An allocator inside a stripped program is named only in its debug file.
        const Fd debug_fd = open_separate_debug_file(fd, name);
        const auto debug_file = debug_fd ? ElfFile::open(debug_fd.get(), name) : Result<ElfFile>(Error{});
        if (debug_file) found = find_probe_points(*file, table_, &*debug_file);
    }
    if (!found) {
        log_warning(found.error().what + ": " + found.error().why);
        return probed;
    }
    probed.points = std::move(found->points);
    for (const SkippedFunction& skipped : found->skipped)
        log_warning(fmt::format("{}: calls of {} are not seen: {}", name, skipped.symbol, skipped.reason));
    for (const ProbePoint& point : probed.points) {
        if (!is_entry(point.kind)) continue;
        const AllocatorFunction& function = table_[point.row];
        (function.kind == BlockKind::mapping ? probed.has_mappings : probed.has_heap) = true;
        probed.has_collector |= function.kind == BlockKind::gc && function.scope != RowScope::go_runtime;
        probed.is_go |= function.scope == RowScope::go_runtime;
        probed.families.emplace(function.family);
    }
    probed.has_malloc = found->allocator.has_malloc;
    // A static program's allocator is in one file with everything else.
    probed.is_static = file->is_static();
    probed.has_only_heap = (found->allocator.has_malloc || probed.has_collector) && !probed.has_mappings &&
                           !probed.is_static && file->interpreter().empty();
    if (probed.is_go) probed.allocator_code = go_runtime_code(*file);
    return probed;
}

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
