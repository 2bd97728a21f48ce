#include "tracing/tracer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "base/log.hpp"
#include "tracing/end_status.hpp"

namespace memtrace {
namespace {

uint64_t monotonic_now_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

std::string process_name(const ProcessInfo& process) {
    return fmt::format("{}[{}]", process.comm, process.pid);
}

ProcessRecord process_record(const Target& target, std::string event) {
    ProcessRecord record;
    record.event = std::move(event);
    record.pid = target.process.pid;
    record.ppid = target.process.ppid;
    record.comm = target.process.comm;
    record.exe = target.process.exe;
    record.runtimes.assign(target.families.begin(), target.families.end());
    if (target.exit_code) record.reason = describe_end(*target.exit_code);
    return record;
}

Error no_allocator_error(const ProcessInfo& process, const std::vector<std::string>& looked_at) {
    return {process_name(process), "no allocator that can be traced",
            fmt::format("looked for malloc and its family in {} mapped files: {}", looked_at.size(),
                        fmt::join(looked_at, ", ")),
            ExitStatus::no_allocator};
}

}  // namespace

Result<std::unique_ptr<Tracer>> Tracer::open(const SessionOptions& options) {
    auto session = Session::open(options);
    if (!session) return std::move(session).error();
    auto mapping_events = MappingEvents::open();
    if (!mapping_events) return std::move(mapping_events).error();
    std::unique_ptr<Tracer> tracer(new Tracer(options, std::move(session).value(), std::move(mapping_events).value()));
    if (auto loaded = tracer->unwind_tables_.load_vdso(); !loaded)
        log_warning(loaded.error().what + ": " + loaded.error().why);
    return tracer;
}

Result<void> Tracer::add_process(pid_t pid) {
    auto process = read_process(pid);
    if (!process) return std::move(process).error();
    if (process->is_kernel_thread)
        return Error{process_name(*process), "is a kernel thread", "name a process", ExitStatus::no_allocator};
    Target& target = targets_[pid];
    target.process = std::move(process).value();
    std::vector<std::string> looked_at;
    auto attached = attach_mappings(target, looked_at);
    // A library that was loaded while the list was read has sent its event meanwhile.
    if (attached) read_mapping_events(monotonic_now_ns());
    if (attached && target.families.empty()) attached = no_allocator_error(target.process, looked_at);
    // Read while the process lives: it may end before its first event is seen.
    if (attached) stack_store_.add_process(pid);
    if (attached) attached = session_->add_target(pid, MT_TARGET_ARMED);
    if (!attached)
        targets_.erase(pid);
    else
        warn_of_functions_not_found(target);
    return attached;
}

/// What an allocator did between its mapping and its probes is in no figure and in no counter.
void Tracer::warn_of_late_allocator(const Target& target, const MappingEvent& event) const {
    const ProbedFile* file = probe_cache_.find_known(identity_of(event.mapping));
    if (file == nullptr || !file->has_malloc) return;
    const uint64_t late_ns = monotonic_now_ns() - event.time_ns;
    log_warning(fmt::format("{}: {} is traced from {:.1f} ms after it was loaded; what it allocated before is not seen",
                            process_name(target.process), event.mapping.path, static_cast<double>(late_ns) / 1e6));
}

/// A library with them may still be loaded; more often the name is wrong.
void Tracer::warn_of_functions_not_found(const Target& target) const {
    std::set<uint32_t> found;
    for (const auto& [identity, probes] : target.probes)
        if (const ProbedFile* file = probe_cache_.find_known(identity))
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

Result<void> Tracer::add_command(pid_t pid, const std::vector<std::string>& files) {
    auto process = read_process(pid);
    if (!process) return std::move(process).error();
    Target& target = targets_[pid];
    target.process = std::move(process).value();
    for (const std::string& file : files) {
        const Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
        if (!fd) continue;
        auto identity = identity_of_open_file(fd.get());
        if (!identity) continue;
        // As /proc/PID/maps will have it.
        std::error_code no_error;
        const std::filesystem::path path = std::filesystem::canonical(file, no_error);
        const std::string name = path.empty() ? file : path.string();
        if (auto attached = attach_file(target, *identity, fd.get(), name); !attached) return attached;
    }
    if (!files.empty()) target.process.comm = files.front().substr(files.front().rfind('/') + 1);
    warn_of_functions_not_found(target);
    return session_->add_target(pid, MT_TARGET_ARM_AT_EXEC);
}

Result<void> Tracer::attach_mappings(Target& target, std::vector<std::string>& looked_at) {
    auto mappings = read_mappings(target.process.pid);
    if (!mappings) return std::move(mappings).error();
    std::set<FileIdentity> seen;
    for (const Mapping& mapping : *mappings) {
        if (!mapping.is_executable || !mapping.has_file()) continue;
        if (seen.insert(identity_of(mapping)).second) looked_at.push_back(mapping.path);
        if (auto attached = attach_mapping(target, mapping); !attached) return attached;
    }
    return {};
}

Result<void> Tracer::attach_mapping(Target& target, const Mapping& mapping) {
    const FileIdentity identity = identity_of(mapping);
    const ProbedFile* known = probe_cache_.find_known(identity);
    const bool is_done = known && unwind_tables_.is_loaded(target.process.pid, identity) &&
                         (known->points.empty() || target.probes.contains(identity));
    if (!is_done) {
        auto fd = open_mapped_file(target.process.pid, mapping);
        if (!fd) {
            log_warning(fd.error().what + ": " + fd.error().why);
            return {};
        }
        if (auto attached = attach_file(target, identity, fd->get(), mapping.path); !attached) return attached;
    }
    const ProbedFile* file = probe_cache_.find_known(identity);
    if (file && file->has_heap) target.allocator_mappings.push_back({mapping, file->has_only_heap});
    return {};
}

Result<void> Tracer::attach_file(Target& target, const FileIdentity& identity, int fd, const std::string& name) {
    // Before the code runs, where it can be: a stack that meets it earlier is walked by frame pointer.
    unwind_tables_.load(target.process.pid, identity, fd, name);
    if (target.probes.contains(identity)) return {};
    const ProbedFile& file = probe_cache_.find(identity, fd, name);
    if (file.points.empty()) return {};
    auto probes = session_->attach(fd, file.points, target.process.pid);
    if (!probes) return std::move(probes).error();
    target.probes.emplace(identity, std::move(probes).value());
    if (file.has_heap) target.families.insert(file.families.begin(), file.families.end());
    return {};
}

void Tracer::drain(TracerListener& listener) {
    listener_ = &listener;
    drained_ns_ = monotonic_now_ns();
    read_mapping_events(drained_ns_);
    session_->drain_events(*this);
}

/// Naming the sites of a large report takes longer than the ring buffer can wait.
void Tracer::drain_while_naming() {
    constexpr uint64_t interval_ns = 10'000'000;
    if (listener_ != nullptr && monotonic_now_ns() - drained_ns_ >= interval_ns) drain(*listener_);
}

/// Events of the ring refer to mappings that are older than they are, so those are read first.
void Tracer::read_mapping_events(uint64_t at_least_until_ns) {
    if (at_least_until_ns <= mappings_read_ns_) return;
    mappings_read_ns_ = monotonic_now_ns();
    MappingBatch batch = mapping_events_.read();
    side_band_lost_ += batch.lost;
    for (const MappingEvent& event : batch.events) {
        const auto found = targets_.find(event.pid);
        if (found == targets_.end()) continue;
        stack_store_.add_mapping(event.pid, event.mapping, event.time_ns);
        for (const uint32_t owner : found->second.owners)
            session_->forget_code(owner);
        if (!event.mapping.has_file() || found->second.exit_code) continue;
        const size_t probed_before = found->second.probes.size();
        auto attached = attach_mapping(found->second, event.mapping);
        if (attached && found->second.probes.size() > probed_before) warn_of_late_allocator(found->second, event);
        // A process that ends while its library is attached is no loss: nothing of it runs any more.
        if (!attached && read_rss_bytes(event.pid).value_or(0) > 0)
            log_warning(attached.error().what + ": " + attached.error().why);
    }
    if (batch.lost == 0) return;
    for (const auto& [pid, target] : targets_)
        for (const uint32_t owner : target.owners)
            stack_store_.refresh(owner);
}

void Tracer::on_site(const mt_event& event, uint32_t site, std::span<const uint64_t> return_addresses) {
    read_mapping_events(event.time_ns);
    stack_store_.record_stack(site, event.owner, return_addresses, event.time_ns);
    site_aliases_.add_stack(site, event.owner, places_of(event.owner, return_addresses, event.time_ns), false);
}

void Tracer::on_raw_stack(const mt_raw_stack_event& event) {
    read_mapping_events(event.header.time_ns);
    const WalkedStack walked = raw_stacks_.walk(event);
    const std::span<const uint64_t> return_addresses = walked.return_addresses;
    stack_store_.record_stack(event.site, event.header.owner, return_addresses, event.header.time_ns);
    site_aliases_.add_stack(event.site, event.header.owner,
                            places_of(event.header.owner, return_addresses, event.header.time_ns), true);
    if (walked.error) raw_stack_errors_[event.site] = *walked.error;
}

/// What a stack is known by: where its frames are in their files.
std::vector<uint64_t> Tracer::places_of(uint32_t owner, std::span<const uint64_t> return_addresses, uint64_t time_ns) {
    std::vector<uint64_t> places;
    for (const uint64_t return_address : return_addresses) {
        const auto location = stack_store_.locate(owner, return_address - 1, time_ns);
        places.push_back(reinterpret_cast<uint64_t>(location ? location->module : nullptr));
        places.push_back(location ? location->offset : return_address - 1);
    }
    return places;
}

Snapshot Tracer::read_snapshot() const {
    Snapshot snapshot = session_->read_snapshot();
    site_aliases_.apply(snapshot);
    return snapshot;
}

/// The allocator's file whose code is at `address` of the process.
const AllocatorMapping* Tracer::find_allocator(pid_t pid, uint64_t address) const {
    const auto target = targets_.find(pid);
    if (target == targets_.end()) return nullptr;
    for (const AllocatorMapping& allocator : target->second.allocator_mappings)
        if (address >= allocator.mapping.start && address < allocator.mapping.end) return &allocator;
    return nullptr;
}

/// A file that the kernel knows by other numbers than /proc/PID/maps, or one that was mapped a moment ago.
void Tracer::on_file(const mt_file_event& event) {
    const auto mappings = read_mappings(static_cast<pid_t>(event.header.tgid));
    for (const Mapping& mapping : mappings ? *mappings : std::vector<Mapping>()) {
        if (event.address < mapping.start || event.address >= mapping.end || !mapping.has_file()) continue;
        auto fd = open_mapped_file(static_cast<pid_t>(event.header.tgid), mapping);
        unwind_tables_.answer(static_cast<pid_t>(event.header.tgid), event.file, mapping, fd ? fd->get() : -1);
        return;
    }
    // Gone already: who meets the file again asks again.
    session_->remove_unwind_table(event.file);
}

void Tracer::on_mapping(const mt_mapping_event& event) {
    read_mapping_events(event.header.time_ns);
    const AllocatorMapping* allocator = find_allocator(static_cast<pid_t>(event.header.tgid), event.caller);
    // An allocator's own thread maps outside of any call of the program.
    if (event.header.type == MT_EVENT_MAP && allocator && allocator->has_only_heap) return;
    // free gives large blocks back by munmap, and only its entry is seen: such an unmap is not the program's.
    const bool is_allocators = event.header.type == MT_EVENT_UNMAP && allocator;
    mapping_ledger_.apply(event, is_allocators);
}

void Tracer::on_block(const mt_block_event& event) {
    const AllocatorFunction& function = table_[event.row];
    auto known = traced_site_ids_.find(event.site);
    if (known == traced_site_ids_.end())
        known = traced_site_ids_.emplace(event.site, stack_store_.site_id(event.site, "heap", function.name)).first;
    listener_->on_record(BlockEventRecord{.is_free = event.header.type == MT_EVENT_FREE,
                                          .time_ns = event.header.time_ns,
                                          .pid = static_cast<pid_t>(event.header.tgid),
                                          .tid = static_cast<pid_t>(event.header.tid),
                                          .function = std::string(function.name),
                                          .address = event.address,
                                          .size_bytes = event.size_bytes,
                                          .site = known->second});
}

void Tracer::finish_exec(Target& target) {
    auto process = read_process(target.process.pid);
    if (process) target.process = std::move(process).value();
    target.allocator_mappings.clear();
    unwind_tables_.forget_process(target.process.pid);
    if (auto mappings = read_mappings(target.process.pid); mappings)
        for (const Mapping& mapping : *mappings)
            if (mapping.is_executable && mapping.has_file()) (void)attach_mapping(target, mapping);
    // What is not mapped yet may be in a moment: nothing is dropped here.
}

/// A file's numbers may be those of another file once nobody has it.
void Tracer::drop_unused_files() {
    for (const FileIdentity& identity : unwind_tables_.drop_unused()) {
        const bool is_probed =
            std::ranges::any_of(targets_, [&](const auto& target) { return target.second.probes.contains(identity); });
        if (!is_probed) probe_cache_.forget(identity);
    }
}

void Tracer::on_process(const mt_process_event& event) {
    read_mapping_events(event.header.time_ns);
    const auto found = targets_.find(static_cast<pid_t>(event.header.tgid));
    if (found == targets_.end()) return;
    Target& target = found->second;
    switch (static_cast<mt_event_type>(event.header.type)) {
        case MT_EVENT_OWNER:
            target.owners.push_back(event.header.owner);
            stack_store_.add_address_space(event.header.owner, target.process.pid);
            break;
        case MT_EVENT_EXEC:
            if (event.header.owner) session_->release_blocks(event.header.owner);
            mapping_ledger_.end_owner(event.header.owner);
            stack_store_.end_address_space(event.header.owner);
            finish_exec(target);
            listener_->on_record(process_record(target, "exec"));
            break;
        case MT_EVENT_EXIT:
            target.exit_code = event.exit_code;
            if (target.families.empty())
                log_warning(process_name(target.process) + ": no allocator that can be traced was found in it");
            unwind_tables_.forget_process(target.process.pid);
            stack_store_.end_address_space(event.header.owner);
            listener_->on_record(process_record(target, "exit"));
            listener_->on_exit(target.process.pid);
            break;
        default:
            break;
    }
}

std::optional<uint64_t> Tracer::rss_bytes(pid_t pid) {
    Target& target = targets_.at(pid);
    if (target.exit_code) return target.last_rss_bytes;
    if (const auto rss = read_rss_bytes(pid); rss && *rss > 0) target.last_rss_bytes = rss;
    return target.last_rss_bytes;
}

ProcessRecord Tracer::attach_record(pid_t pid) const {
    return process_record(targets_.at(pid), "attach");
}

void Tracer::forget(pid_t pid) {
    const auto found = targets_.find(pid);
    if (found == targets_.end()) return;
    session_->remove_target(pid);
    for (const uint32_t owner : found->second.owners) {
        session_->release_blocks(owner);
        mapping_ledger_.end_owner(owner);
    }
    targets_.erase(found);
    unwind_tables_.forget_process(pid);
    drop_unused_files();
}

const std::vector<Frame>& Tracer::frames(uint32_t site) {
    drain_while_naming();
    return stack_store_.frames(site);
}

std::optional<std::string> Tracer::site_id(uint32_t site, std::string_view kind, std::string_view function) {
    return stack_store_.site_id(site, kind, function);
}

std::optional<std::string> Tracer::stack_error(uint32_t site) {
    const auto error = stack_store_.stack_error(site);
    const auto raw = raw_stack_errors_.find(site);
    return error || raw == raw_stack_errors_.end() ? error : raw->second;
}

}  // namespace memtrace
