#include "tracing/target_probes.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/clock.hpp"
#include "base/log.hpp"

namespace memtrace {
namespace {

Error no_allocator_error(const ProcessInfo& process, const std::vector<std::string>& looked_at) {
    return {process_name(process), "no allocator that can be traced",
            fmt::format("looked for malloc and its family in {} mapped files: {}; --system-calls shows what it maps",
                        looked_at.size(), fmt::join(looked_at, ", ")),
            ExitStatus::no_allocator};
}

/// As /proc/PID/maps will have it.
std::string mapped_name(const std::string& path) {
    std::error_code no_error;
    const std::filesystem::path canonical = std::filesystem::canonical(path, no_error);
    return canonical.empty() ? path : canonical.string();
}

}  // namespace

std::string process_name(const ProcessInfo& process) {
    return fmt::format("{}[{}]", process.comm, process.pid);
}

Result<void> TargetProbes::attach_process(Target& target) {
    auto mappings = read_mappings(target.process.pid);
    if (!mappings) return std::move(mappings).error();
    std::vector<std::string> looked_at;
    std::set<FileIdentity> seen;
    for (const Mapping& mapping : *mappings) {
        if (!mapping.is_executable || !mapping.has_file()) continue;
        if (seen.insert(identity_of(mapping)).second) looked_at.push_back(mapping.path);
        if (auto attached = try_mapping(target, mapping); !attached) return attached;
    }
    if (target.families.empty() && !traces_mappings_alone_) return no_allocator_error(target.process, looked_at);
    if (!target.has_mapping_functions) try_to_see_system_calls();
    return {};
}

Result<void> TargetProbes::see_system_calls() {
    traces_mappings_alone_ = true;
    return attach_system_calls();
}

Result<void> TargetProbes::attach_system_calls() {
    if (sees_system_calls_) return {};
    const auto price_ns = session_.see_system_calls();
    if (!price_ns) return price_ns.error();
    sees_system_calls_ = true;
    constexpr auto text =
        "mappings by system calls are seen too; each system call of any process takes {} ns longer now";
    log_info(fmt::format(text, *price_ns));
    return {};
}

void TargetProbes::try_to_see_system_calls() {
    if (cannot_see_system_calls_) return;
    const auto seen = attach_system_calls();
    cannot_see_system_calls_ = !seen;
    if (!seen)
        log_warning(seen.error().what + ": " + seen.error().why + "; memory that is mapped by them is unexplained");
}

/// A program that loads no libraries has libc's functions from the start or never.
void TargetProbes::note_mapping_functions(Target& target, const ProbedFile& file) {
    target.has_mapping_functions |= file.has_mappings;
    if (file.is_static && file.has_heap && !file.has_mappings) try_to_see_system_calls();
}

Result<void> TargetProbes::attach_files(Target& target, const std::vector<std::string>& files) {
    for (const std::string& path : files) {
        const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
        if (!fd) continue;
        const auto identity = identity_of_open_file(fd.get());
        if (!identity) continue;
        if (auto attached = attach_file(target, *identity, fd.get(), mapped_name(path)); !attached) return attached;
    }
    return {};
}

Result<void> TargetProbes::prepare(const std::vector<std::string>& files) {
    for (const std::string& path : files) {
        Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
        if (!fd) continue;
        const auto identity = identity_of_open_file(fd.get());
        if (!identity) continue;
        const std::string name = mapped_name(path);
        const ProbedFile& file = cache_.find(*identity, fd.get(), name);
        if (file.points.empty()) continue;
        if (are_for_all_)
            if (auto attached = links_.attach_for_all(*identity, fd.get(), file, name); !attached) return attached;
        likely_.push_back({*identity, std::move(fd), name});
    }
    return {};
}

void TargetProbes::attach_likely(Target& target) {
    for (const LikelyFile& likely : likely_)
        if (const ProbedFile* file = cache_.find_known(likely.identity))
            (void)links_.attach(likely.identity, likely.fd.get(), *file, likely.name, target.process.pid);
}

uint64_t TargetProbes::attach_child(const Target& parent, Target& child, const mt_process_event& event) {
    const uint64_t armed_ns =
        child_armer_.take(parent.process.pid, child.process.pid, event.header.time_ns, event.header.owner);
    child.families = parent.families;
    child.allocator_mappings = parent.allocator_mappings;
    child.has_mapping_functions = parent.has_mapping_functions;
    child.dynamic_linker = parent.dynamic_linker;
    unwind_tables_.inherit(parent.process.pid, child.process.pid);
    return armed_ns;
}

Result<void> TargetProbes::attach_file(Target& target, const FileIdentity& identity, int fd, const std::string& name) {
    // Before the code runs, where it can be: a stack that meets it earlier is walked by frame pointer.
    unwind_tables_.load(target.process.pid, identity, fd, name);
    if (links_.is_attached(identity, target.process.pid)) return {};
    const ProbedFile& file = cache_.find(identity, fd, name);
    if (file.points.empty()) return {};
    if (auto attached = links_.attach(identity, fd, file, name, target.process.pid); !attached) return attached;
    if (file.has_heap) target.families.insert(file.families.begin(), file.families.end());
    note_mapping_functions(target, file);
    return {};
}

Result<void> TargetProbes::try_mapping(Target& target, const Mapping& mapping) {
    const FileIdentity identity = identity_of(mapping);
    const pid_t pid = target.process.pid;
    const ProbedFile* known = cache_.find_known(identity);
    const bool is_done = known && unwind_tables_.is_loaded(pid, identity) &&
                         (known->points.empty() || links_.is_attached(identity, pid));
    if (!is_done) {
        auto fd = open_mapped_file(pid, mapping);
        if (!fd) {
            log_warning(fd.error().what + ": " + fd.error().why);
            return {};
        }
        if (auto attached = attach_file(target, identity, fd->get(), mapping.path); !attached) return attached;
    }
    const ProbedFile* file = cache_.find_known(identity);
    if (file) note_mapping_functions(target, *file);
    if (!file || !file->has_heap) return {};
    target.families.insert(file->families.begin(), file->families.end());
    target.allocator_mappings.push_back(
        {mapping, file->has_collector, file->is_go, file->has_only_heap, file->allocator_code});
    return {};
}

void TargetProbes::attach_mapping(Target& target, const Mapping& mapping, uint64_t time_ns) {
    const pid_t pid = target.process.pid;
    const auto attached = try_mapping(target, mapping);
    // A process that ends while its library is attached is no loss: nothing of it runs any more.
    if (!attached && read_rss_bytes(pid).value_or(0) > 0)
        log_warning(attached.error().what + ": " + attached.error().why);
    if (attached && time_ns > 0) note_window(target, mapping, time_ns);
}

/// What an allocator did between its mapping and its probes is in no figure and in no counter.
void TargetProbes::note_window(Target& target, const Mapping& mapping, uint64_t time_ns) {
    const FileIdentity identity = identity_of(mapping);
    const ProbedFile* file = cache_.find_known(identity);
    const auto since_ns = links_.standing_since_ns(identity, target.process.pid);
    if (file == nullptr || !file->has_malloc || !since_ns || *since_ns <= time_ns) return;
    const uint64_t late_ns = *since_ns - time_ns;
    if (target.is_found_later) {
        target.since_birth = false;
        target.window_from_ns = time_ns;
        target.window_ns = std::max(target.window_ns.value_or(0), late_ns);
        return;
    }
    log_warning(fmt::format("{}: {} is traced from {:.1f} ms after it was loaded; what it allocated before is not seen",
                            process_name(target.process), mapping.path, static_cast<double>(late_ns) / 1e6));
}

void TargetProbes::attach_mapping_for_all(pid_t pid, const Mapping& mapping) {
    const FileIdentity identity = identity_of(mapping);
    if (!mapping.has_file() || links_.is_known(identity)) return;
    // This program has an allocator of its own, so that it meets none of its probes.
    if (own_program_ == identity) return;
    const ProbedFile* file = cache_.find_known(identity);
    if (file && file->points.empty()) return;
    const auto fd = open_mapped_file(pid, mapping);
    if (!fd) return;
    file = &cache_.find(identity, fd->get(), mapping.path);
    if (file->points.empty()) return;
    if (auto attached = links_.attach_for_all(identity, fd->get(), *file, mapping.path); !attached)
        log_warning(attached.error().what + ": " + attached.error().why);
}

void TargetProbes::attach_process_for_all(pid_t pid) {
    const auto mappings = read_mappings(pid);
    if (!mappings) return;
    for (const Mapping& mapping : *mappings)
        if (mapping.is_executable) attach_mapping_for_all(pid, mapping);
}

void TargetProbes::forget_image(Target& target) {
    target.allocator_mappings.clear();
    target.has_mapping_functions = false;
    target.dynamic_linker.reset();
    unwind_tables_.forget_process(target.process.pid);
}

std::optional<FileIdentity> TargetProbes::identity_of_own_program() {
    const Fd program(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    const auto identity = program ? identity_of_open_file(program.get()) : Result<FileIdentity>(Error{});
    return identity ? std::optional(*identity) : std::nullopt;
}

bool TargetProbes::is_likely(const FileIdentity& identity) const {
    return std::ranges::any_of(likely_, [&](const LikelyFile& likely) { return likely.identity == identity; });
}

void TargetProbes::release(pid_t pid) {
    links_.release(pid);
    unwind_tables_.forget_process(pid);
    // A file's numbers may be those of another file once nobody has it.
    for (const FileIdentity& identity : unwind_tables_.drop_unused())
        if (!links_.is_known(identity) && !is_likely(identity)) cache_.forget(identity);
}

/// A file that the kernel knows by other numbers than /proc/PID/maps, or one that was mapped a moment ago.
void TargetProbes::answer(const mt_file_event& event) {
    const auto pid = static_cast<pid_t>(event.header.tgid);
    const auto mappings = read_mappings(pid);
    for (const Mapping& mapping : mappings ? *mappings : std::vector<Mapping>()) {
        if (event.address < mapping.start || event.address >= mapping.end || !mapping.has_file()) continue;
        auto fd = open_mapped_file(pid, mapping);
        unwind_tables_.answer(pid, event.file, mapping, fd ? fd->get() : -1);
        return;
    }
    // Gone already: who meets the file again asks again.
    session_.remove_unwind_table(event.file);
}

/// A library with them may still be loaded; more often the name is wrong.
void TargetProbes::warn_of_functions_not_found(const Target& target) const {
    std::set<uint32_t> found;
    for (const FileIdentity& identity : links_.files_of(target.process.pid))
        if (const ProbedFile* file = cache_.find_known(identity))
            for (const ProbePoint& point : file->points)
                found.insert(point.row);
    for (uint32_t row = 0; row < table_.rows().size(); ++row) {
        const AllocatorFunction& function = table_[row];
        if (function.scope != RowScope::functions_of_a_user || found.contains(row)) continue;
        log_warning(fmt::format("{}: no file that {} maps defines it yet{}", function.symbol,
                                process_name(target.process),
                                function.file.empty() ? "" : fmt::format(" and is {}", function.file)));
    }
}

}  // namespace memtrace
