#include "tracing/tracer.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <utility>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "processes/loaded_files.hpp"

#include "heap/inheritance.hpp"

namespace memtrace {
namespace {

/// What the new mapping shows, as long as its process lives.
SharedMapping complete_shared_mapping(mt_mapping_event& event) {
    // MAP_SHARED and MAP_SHARED_VALIDATE (Linux 4.15).
    constexpr uint32_t shared_types = 1;
    if (event.header.type != MT_EVENT_MAP || (event.map_flags & shared_types) == 0) return {};
    const auto mappings = read_mappings(static_cast<pid_t>(event.header.tgid));
    for (const Mapping& mapping : mappings ? *mappings : std::vector<Mapping>())
        if (mapping.is_shared && mapping.start <= event.address && event.address < mapping.end) {
            // What the kernel side could not look up: the size of a segment.
            if (event.size_bytes == 0) event.size_bytes = mapping.end - mapping.start;
            return {mapping.device, mapping.inode, mapping.file_offset + event.address - mapping.start};
        }
    return {};
}

/// As the events say it: private huge pages are files to the kernel.
MappingBacking backing_of(const Mapping& mapping) {
    if (mapping.is_shared) return MappingBacking::shared;
    const bool is_file = mapping.inode != 0 && !mapping.path.starts_with("/anon_hugepage");
    return is_file ? MappingBacking::file : MappingBacking::anonymous;
}

}  // namespace

Result<std::unique_ptr<Tracer>> Tracer::open(const SessionOptions& options, const ScopeOptions& scope_options,
                                             TypeNames type_names) {
    auto scope = TargetScope::open(scope_options);
    if (!scope) return std::move(scope).error();
    SessionOptions with_scope = options;
    with_scope.program_names = scope->program_names();
    with_scope.cgroups = scope->cgroups();
    with_scope.follows_children = scope->follows_children();
    with_scope.traces_all = scope->traces_all();
    if (scope->is_for_all())
        log_info("probes are for everybody: each call of an allocator that is probed costs every process here a trap");
    auto session = Session::open(with_scope);
    if (!session) return std::move(session).error();
    auto mapping_events = MappingEvents::open();
    if (!mapping_events) return std::move(mapping_events).error();
    std::unique_ptr<Tracer> tracer(new Tracer(options, std::move(scope).value(), std::move(session).value(),
                                              std::move(mapping_events).value(), std::move(type_names)));
    if (auto loaded = tracer->targets_.probes().load_vdso(); !loaded)
        log_warning(loaded.error().what + ": " + loaded.error().why);
    if (options.sees_system_calls)
        if (auto seen = tracer->targets_.probes().see_system_calls(); !seen) return std::move(seen).error();
    return tracer;
}

Result<void> Tracer::add_process(pid_t pid) {
    auto added = targets_.add_process(pid);
    // A library that was loaded while the list was read has sent its event meanwhile.
    if (added) read_mapping_events(monotonic_now_ns());
    return added;
}

Result<void> Tracer::add_scope(TracerListener& listener) {
    for (const std::string& program : scope_.program_paths())
        if (const auto files = files_loaded_by(program, environ))
            if (auto prepared = targets_.probes().prepare(*files); !prepared) return prepared;
    // What some process has mapped is what the next one will map.
    if (scope_.is_for_all() && scope_.has_unknown_files())
        for (const pid_t pid : list_processes("/proc"))
            targets_.probes().attach_process_for_all(pid);
    // Those that were made before the kernel side could tell.
    listener_ = &listener;
    watch_cgroups(scope_.find_missing());
    targets_.add_running(listener);
    read_mapping_events(monotonic_now_ns());
    return {};
}

void Tracer::arm() {
    // The window of a process that is found later is as long as this thread waits for a cpu. Not allowed: longer ones.
    constexpr int soon = -10;
    if (scope_.can_grow()) setpriority(PRIO_PROCESS, 0, soon);
    if (scope_.follows_children())
        if (auto started = targets_.probes().start_arming_children(); !started)
            log_warning(started.error().what + ": " + started.error().why);
    // Before the first object: what is allocated earlier has no type.
    collected_heaps_.open_heaps(targets_.all());
    go_heaps_.open_heaps(targets_.all());
    session_->arm();
    targets_.note_recording_begins();
}

void Tracer::drain(TracerListener& listener) {
    listener_ = &listener;
    drained_ns_ = monotonic_now_ns();
    read_mapping_events(drained_ns_);
    session_->drain_events(*this);
    if (collected_heaps_.open_soon(targets_.all(), drained_ns_)) go_heaps_.open_heaps(targets_.all());
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
    for (const MappingEvent& event : batch.events)
        targets_.on_mapping(event);
    if (batch.lost > 0) targets_.read_mappings_again();
}

void Tracer::on_site(const mt_event& event, uint32_t site, std::span<const uint64_t> return_addresses) {
    read_mapping_events(event.time_ns);
    stack_store_.record_stack(site, event.owner, return_addresses, event.time_ns);
}

void Tracer::on_raw_stack(const mt_raw_stack_event& event) {
    read_mapping_events(event.header.time_ns);
    const WalkedStack walked = raw_stacks_.walk(event);
    stack_store_.record_stack(event.site, event.header.owner, walked.return_addresses, event.header.time_ns);
    if (walked.error) raw_stack_errors_[event.site] = *walked.error;
}

Snapshot Tracer::read_snapshot(BlockDetail detail) {
    go_heaps_.open_heaps(targets_.all());
    go_heaps_.read_profiles();
    collected_heaps_.open_heaps(targets_.all());
    if (collected_heaps_.has_any() || go_heaps_.has_any()) detail = BlockDetail::whole;
    Snapshot snapshot = session_->read_snapshot(detail);
    if (collected_heaps_.release_dead(snapshot)) snapshot = session_->read_snapshot(detail);
    go_heaps_.complete(snapshot);
    const std::vector<TypedObjects> go_objects = go_heaps_.take_typed_objects(snapshot);
    collected_heaps_.add_live_objects(snapshot);
    snapshot.typed_objects.insert(snapshot.typed_objects.end(), go_objects.begin(), go_objects.end());
    targets_.leave_out_later_processes(snapshot);
    for (Site& site : snapshot.sites)
        site.stack = stack_store_.stack_hash(site.index);
    count_unknown_frees(snapshot);
    if (detail != BlockDetail::none) resync_mappings(snapshot);
    return snapshot;
}

std::string Tracer::type_name(pid_t pid, uint32_t type) const {
    auto name = go_heaps_.type_name(pid, type);
    return name ? *std::move(name) : collected_heaps_.type_name(pid, type);
}

/// Where mapping events of an address space were lost, what it has mapped is asked of the kernel. What still waits in
/// the ring comes first, so that what follows is younger than the list, but for the moment in between.
void Tracer::resync_mappings(const Snapshot& snapshot) {
    for (const AddressSpace& space : snapshot.address_spaces) {
        const uint64_t lost = space.counters[MT_COUNT_MAPPINGS_RING_FULL];
        if (lost == 0 || space.ended_ns != 0 || resynced_[space.owner] == lost) continue;
        if (listener_ != nullptr) drain(*listener_);
        const auto mappings = read_mappings(space.pid);
        if (!mappings) continue;
        std::vector<MappedRange> ranges;
        for (const Mapping& mapping : *mappings)
            ranges.push_back({mapping.start, mapping.end, backing_of(mapping)});
        resynced_[space.owner] = lost;
        const uint64_t gone_bytes = mapping_ledger_.resync(space.owner, ranges);
        constexpr auto text = "mapping events of process {} were lost: its mappings were read again, {} bytes are gone";
        log_warning(fmt::format(text, space.pid, gone_bytes));
    }
}

/// The allocator's file whose code is at `address` of the process.
const AllocatorMapping* Tracer::find_allocator(pid_t pid, uint64_t address) const {
    const auto target = targets_.all().find(pid);
    if (target == targets_.all().end()) return nullptr;
    for (const AllocatorMapping& allocator : target->second.allocator_mappings)
        if (address >= allocator.mapping.start && address < allocator.mapping.end) return &allocator;
    return nullptr;
}

void Tracer::on_mapping(const mt_mapping_event& event) {
    read_mapping_events(event.header.time_ns);
    const auto pid = static_cast<pid_t>(event.header.tgid);
    const AllocatorMapping* allocator = find_allocator(pid, event.caller);
    const bool is_system_call = (event.flags & MT_MAPPING_BY_SYSTEM_CALL) != 0;
    // Where libc's functions are seen, the dynamic linker's are not: what it maps are the files of libraries.
    if (is_system_call && !allocator && targets_.is_in_dynamic_linker(pid, event.caller)) return;
    bool is_allocators = (event.flags & MT_MAPPING_OF_ALLOCATOR) != 0;
    // An allocator's own thread maps outside of any call of the program.
    is_allocators |= allocator && allocator->has_only_heap;
    is_allocators |= is_system_call && allocator && allocator->is_allocator_code(event.caller);
    // free gives large blocks back by munmap, and only its entry is seen: such an unmap is not the program's.
    is_allocators |= event.header.type == MT_EVENT_UNMAP && allocator && !is_system_call;
    mt_mapping_event completed = event;
    const SharedMapping shared = complete_shared_mapping(completed);
    mapping_ledger_.apply(completed, is_allocators, shared);
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

void Tracer::on_process(const mt_process_event& event) {
    read_mapping_events(event.header.time_ns);
    const auto pid = static_cast<pid_t>(event.header.tgid);
    if (event.header.type == MT_EVENT_EXEC) collected_heaps_.end_address_space(pid);
    if (event.header.type == MT_EVENT_EXEC || event.header.type == MT_EVENT_EXIT) go_heaps_.end_address_space(pid);
    if (event.header.type == MT_EVENT_EXEC && event.header.owner) {
        ended_by_exec_.insert(event.header.owner);
        mapping_ledger_.end_owner(event.header.owner);
        stack_store_.end_address_space(event.header.owner, event.header.time_ns);
    }
    // One is forgotten when the next one of its process is seen.
    has_news_of_exec_ |= !ended_by_exec_.empty();
    if (event.header.type == MT_EVENT_FORK && event.header.owner)
        mapping_ledger_.fork(event.parent_owner, event.header.owner);
    if (event.header.type == MT_EVENT_MOVED)
        watch_cgroups(scope_.on_process_moved(static_cast<pid_t>(event.header.tgid)));
    targets_.on_process(event, *listener_);
}

void Tracer::on_cgroup(const mt_event& event, std::string_view path) {
    if (event.type == MT_EVENT_CGROUP_MADE) return watch_cgroups(scope_.on_cgroup_made(path));
    if (const auto gone = scope_.on_cgroup_gone(path))
        log_info(*gone + " is gone; should it come again, its processes are traced");
}

/// Those at these places of the scope exist from now on.
void Tracer::watch_cgroups(const std::vector<uint32_t>& made) {
    for (const uint32_t index : made)
        if (auto watched = session_->watch_cgroup(index, scope_.cgroups()[index]); !watched)
            log_warning(watched.error().what + ": " + watched.error().why);
    if (!made.empty()) targets_.add_running(*listener_);
}

std::optional<uint64_t> Tracer::rss_bytes(pid_t pid) {
    Target* target = targets_.find(pid);
    if (target == nullptr) return std::nullopt;
    if (target->exit_code) return target->last_rss_bytes;
    if (const auto rss = read_rss_bytes(pid); rss && *rss > 0) target->last_rss_bytes = rss;
    return target->last_rss_bytes;
}

ProcessRecord Tracer::attach_record(pid_t pid) const {
    return Targets::record_of(targets_.all().at(pid), "attach");
}

void Tracer::forget(pid_t pid) {
    const Target* target = targets_.find(pid);
    if (target == nullptr) return;
    const std::vector<uint32_t> owners = target->owners;
    targets_.forget(pid, listener_);
    for (const uint32_t owner : owners) {
        mapping_ledger_.end_owner(owner);
        ended_by_exec_.erase(owner);
        resynced_.erase(owner);
    }
    forgotten_owners_.insert(forgotten_owners_.end(), owners.begin(), owners.end());
    collected_heaps_.forget(pid);
    go_heaps_.forget(pid);
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

KeptSite Tracer::keep_stack(uint32_t site) {
    const KeptStack kept = stack_store_.keep(site);
    if (const auto raw = raw_stack_errors_.find(site); raw != raw_stack_errors_.end() && kept.site != 0)
        raw_stack_errors_.try_emplace(kept.site, raw->second);
    return {kept.site, kept.hash};
}

}  // namespace memtrace
