#include "tracing/targets.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "processes/traceability.hpp"
#include "tracing/end_status.hpp"

namespace memtrace {
namespace {

// The kernel maps an image, and with musl its allocator, just before it says that there was an exec.
constexpr uint64_t mapped_before_exec_ns = 1'000'000;

std::string comm_of(const mt_process_event& event) {
    return {event.comm, strnlen(event.comm, sizeof event.comm)};
}

}  // namespace

ProcessRecord Targets::record_of(const Target& target, std::string event) {
    ProcessRecord record;
    record.event = std::move(event);
    record.pid = target.process.pid;
    record.ppid = target.process.ppid;
    record.comm = target.process.comm;
    record.exe = target.process.exe;
    record.runtimes.assign(target.families.begin(), target.families.end());
    if (target.is_found_later) record.since_birth = target.since_birth;
    record.window_ns = target.window_ns;
    record.cgroup = target.process.cgroup;
    if (target.process.container) record.container = target.process.container->id;
    if (target.exit_code) record.reason = describe_end(*target.exit_code);
    return record;
}

Target* Targets::find(pid_t pid) {
    const auto found = targets_.find(pid);
    return found == targets_.end() ? nullptr : &found->second;
}

Result<void> Targets::add_process(pid_t pid) {
    auto process = read_process(pid);
    if (!process) return std::move(process).error();
    if (const auto reason = reason_not_to_trace(pid))
        return Error{process_name(*process), *reason, "name another process", ExitStatus::no_allocator};
    Target& target = targets_[pid];
    target.process = std::move(process).value();
    // What it forks while its probes are made is followed already.
    auto attached = session_.add_target(pid, MT_TARGET_NOT_ARMED, scope_.follows_children());
    // Read while the process lives: it may end before its first event is seen.
    if (attached) stack_store_.add_process(pid);
    if (attached) attached = probes_.attach_process(target);
    if (attached && !session_.arm_target(pid, scope_.follows_children()))
        attached = Error{process_name(target.process), "has ended", "", ExitStatus::no_such_target};
    if (!attached) {
        remove(pid);
        targets_.erase(pid);
        return attached;
    }
    claim_mappings(target);
    probes_.warn_of_functions_not_found(target);
    return {};
}

Result<void> Targets::add_command(pid_t pid, const std::vector<std::string>& files) {
    auto process = read_process(pid);
    if (!process) return std::move(process).error();
    Target& target = targets_[pid];
    target.process = std::move(process).value();
    if (auto attached = probes_.attach_files(target, files); !attached) return attached;
    if (!files.empty()) target.process.comm = files.front().substr(files.front().rfind('/') + 1);
    probes_.warn_of_functions_not_found(target);
    return session_.add_target(pid, MT_TARGET_ARM_AT_EXEC, scope_.follows_children());
}

void Targets::skip(pid_t pid, const std::string& comm, const Error& error, TracerListener& listener) {
    log_warning(fmt::format("{}: {}", error.what, error.why));
    ProcessRecord record;
    record.event = "skip";
    record.pid = pid;
    record.comm = comm;
    record.reason = error.why;
    listener.on_record(record);
}

void Targets::try_to_add(pid_t pid, TracerListener& listener) {
    const auto process = read_process(pid);
    if (!process || process->is_kernel_thread || pid == getpid() || targets_.contains(pid)) return;
    if (auto added = add_process(pid); !added) {
        if (read_process(pid)) skip(pid, process->comm, added.error(), listener);
        return;
    }
    Target& target = targets_.at(pid);
    target.is_found_later = recording_since_ns_ != UINT64_MAX;
    if (target.is_found_later) listener.on_record(record_of(target, "attach"));
}

void Targets::add_running(TracerListener& listener) {
    for (const pid_t pid : scope_.running())
        try_to_add(pid, listener);
    // A child that was forked by one that was not a target yet may have been missed by the look before.
    while (scope_.follows_children() && add_descendants(listener))
        continue;
}

/// Whether some were found.
bool Targets::add_descendants(TracerListener& listener) {
    bool is_found = false;
    for (const pid_t pid : list_processes("/proc")) {
        if (targets_.contains(pid) || pid == getpid()) continue;
        const auto process = read_process(pid);
        if (!process || !targets_.contains(process->ppid)) continue;
        try_to_add(pid, listener);
        is_found |= targets_.contains(pid);
    }
    return is_found;
}

void Targets::note_recording_begins() {
    recording_since_ns_ = monotonic_now_ns();
}

void Targets::on_mapping(const MappingEvent& event) {
    Target* target = find(event.pid);
    if (scope_.is_for_all()) probes_.attach_mapping_for_all(event.pid, event.mapping);
    if (target == nullptr) {
        if (scope_.can_grow()) unclaimed_.add(event);
        return;
    }
    stack_store_.add_mapping(event.pid, event.mapping, event.time_ns);
    for (const uint32_t owner : target->owners)
        session_.forget_code(owner);
    if (!event.mapping.has_file() || target->exit_code) return;
    probes_.attach_mapping(*target, event.mapping, event.time_ns);
}

/// What the process mapped before it was known to be a target.
void Targets::claim_mappings(Target& target) {
    for (const MappingEvent& event : unclaimed_.claim(target.process.pid))
        on_mapping(event);
}

void Targets::read_mappings_again() {
    for (auto& [pid, target] : targets_) {
        for (const uint32_t owner : target.owners)
            stack_store_.refresh(owner);
        if (!target.exit_code) attach_present_mappings(target);
    }
}

void Targets::attach_present_mappings(Target& target) {
    const auto mappings = read_mappings(target.process.pid);
    if (!mappings) return;
    target.allocator_mappings.clear();
    for (const Mapping& mapping : *mappings)
        if (mapping.is_executable && mapping.has_file()) probes_.attach_mapping(target, mapping, 0);
}

bool Targets::is_in_dynamic_linker(pid_t pid, uint64_t address) {
    Target* target = find(pid);
    if (target == nullptr) return false;
    if (!target->dynamic_linker) {
        target->dynamic_linker = AddressRange{};
        const auto mappings = read_mappings(pid);
        const auto base = read_interpreter_base(pid);
        if (!mappings || !base) return false;
        const auto first = std::ranges::find(*mappings, *base, &Mapping::start);
        for (const Mapping& mapping : *mappings)
            if (first != mappings->end() && mapping.is_executable && mapping.inode == first->inode &&
                mapping.device == first->device)
                target->dynamic_linker = AddressRange{mapping.start, mapping.end};
    }
    return target->dynamic_linker->contains(address);
}

void Targets::on_process(const mt_process_event& event, TracerListener& listener) {
    const auto pid = static_cast<pid_t>(event.header.tgid);
    Target* target = find(pid);
    const bool is_deferred = std::ranges::any_of(
        deferred_, [&](const mt_process_event& other) { return other.header.tgid == event.header.tgid; });
    if (is_deferred || (target && target->exit_code)) {
        deferred_.push_back(event);
        return;
    }
    switch (static_cast<mt_event_type>(event.header.type)) {
        case MT_EVENT_OWNER:
            if (!target) adopt(event, listener);
            if (Target* owned = find(pid)) on_owner(*owned, event, listener);
            break;
        case MT_EVENT_FORK:
            on_fork(event, listener);
            break;
        case MT_EVENT_EXEC:
            if (target)
                on_exec(*target, event, listener);
            else
                adopt(event, listener);
            break;
        case MT_EVENT_EXIT:
            if (target)
                on_exit(*target, event, listener);
            else  // the event of its fork was lost, but it may have been armed
                probes_.release(pid);
            break;
        case MT_EVENT_BORN:
            if (!target) on_born(event, listener);
            break;
        case MT_EVENT_MOVED:
            if (!target && scope_.wants(pid)) try_to_add(pid, listener);
            break;
        default:
            break;
    }
}

void Targets::on_owner(Target& target, const mt_process_event& event, TracerListener& listener) {
    target.owners.push_back(event.header.owner);
    stack_store_.add_address_space(event.header.owner, target.process.pid);
    if (target.is_found_later) listener.on_record(record_of(target, "attach"));
}

/// Of a process that began at `began_ns` and had its probes at `armed_ns`: nothing is recorded before the session does.
void Targets::note_birth(Target& target, uint64_t began_ns, uint64_t armed_ns) const {
    if (recording_since_ns_ != UINT64_MAX) armed_ns = std::max(armed_ns, recording_since_ns_);
    target.since_birth = armed_ns <= began_ns;
    target.window_ns = armed_ns - std::min(armed_ns, began_ns);
}

void Targets::on_fork(const mt_process_event& event, TracerListener& listener) {
    const auto pid = static_cast<pid_t>(event.header.tgid);
    const Target* parent = find(static_cast<pid_t>(event.parent_tgid));
    if (parent == nullptr) {
        remove(pid);
        return;
    }
    Target& child = targets_[pid];
    child = Target{};
    child.process = parent->process;
    child.process.pid = pid;
    child.process.ppid = parent->process.pid;
    child.is_found_later = true;
    const uint64_t attached_ns = probes_.attach_child(*parent, child, event);
    note_birth(child, event.header.time_ns, event.is_armed ? event.header.time_ns : attached_ns);
    if (event.header.owner) {
        child.owners.push_back(event.header.owner);
        child.forked_from = parent->process.pid;
        stack_store_.add_forked_address_space(event.header.owner, pid, parent->process.pid);
    }
    if (const auto process = read_process(pid)) child.process.start_time = process->start_time;
    claim_mappings(child);
    listener.on_record(record_of(child, "fork"));
}

/// In a control group whose processes are targets.
void Targets::on_born(const mt_process_event& event, TracerListener& listener) {
    adopt(event, listener);
    Target* target = find(static_cast<pid_t>(event.header.tgid));
    if (target == nullptr) return;
    note_birth(*target, event.header.time_ns, scope_.is_for_all() ? event.header.time_ns : monotonic_now_ns());
    listener.on_record(record_of(*target, "fork"));
}

void Targets::on_exec(Target& target, const mt_process_event& event, TracerListener& listener) {
    auto process = read_process(target.process.pid);
    target.process.comm = comm_of(event);
    target.forked_from = 0;
    if (process) target.process = std::move(process).value();
    // What the new image mapped has been attached to as it came, and has said how late that was.
    if (target.window_from_ns + mapped_before_exec_ns < event.header.time_ns) {
        target.since_birth = true;
        target.window_ns = 0;
    }
    probes_.forget_image(target);
    attach_present_mappings(target);
    listener.on_record(record_of(target, "exec"));
}

void Targets::on_exit(Target& target, const mt_process_event& event, TracerListener& listener) {
    target.exit_code = event.exit_code;
    target.exited_ns = event.header.time_ns;
    if (target.families.empty() && target.owners.empty())
        log_warning(process_name(target.process) + ": no allocator that can be traced was found in it");
    probes_.release(target.process.pid);
    stack_store_.end_address_space(event.header.owner, event.header.time_ns);
    listener.on_record(record_of(target, "exit"));
    listener.on_exit(target.process.pid);
}

void Targets::leave_out_later_processes(Snapshot& snapshot) const {
    std::set<uint32_t> later;
    std::erase_if(snapshot.address_spaces, [&](const AddressSpace& space) {
        const auto target = targets_.find(space.pid);
        const bool is_later =
            target != targets_.end() && target->second.exit_code && space.first_seen_ns > target->second.exited_ns;
        if (is_later) later.insert(space.owner);
        return is_later;
    });
    if (!later.empty()) std::erase_if(snapshot.sites, [&](const Site& site) { return later.contains(site.owner); });
}

/// What is not wanted after all.
void Targets::remove(pid_t pid) {
    if (const uint32_t owner = session_.remove_target(pid)) removed_owners_.push_back(owner);
    probes_.release(pid);
}

/// The kernel side has made a process a target that it found by its program, its control group or its allocation.
void Targets::adopt(const mt_process_event& event, TracerListener& listener) {
    const auto pid = static_cast<pid_t>(event.header.tgid);
    const auto process = read_process(pid);
    // Of who is born in a control group the kernel side knows; it may be gone already.
    const bool is_wanted =
        event.header.type == MT_EVENT_BORN || (process ? scope_.wants(pid) : scope_.wanted(pid, unclaimed_.paths(pid)));
    if (!is_wanted) {
        remove(pid);
        return;
    }
    Target& target = targets_[pid];
    target = Target{};
    if (process) target.process = *process;
    target.process.pid = pid;
    if (!process) target.process.comm = comm_of(event);
    target.is_found_later = true;
    target.since_birth = true;
    target.window_ns = 0;
    probes_.attach_likely(target);
    claim_mappings(target);
    attach_present_mappings(target);
    if (event.header.type == MT_EVENT_EXEC) listener.on_record(record_of(target, "exec"));
}

void Targets::forget(pid_t pid, TracerListener* listener) {
    if (Target* target = find(pid); target && !target->exit_code) remove(pid);
    targets_.erase(pid);
    probes_.release(pid);
    std::vector<mt_process_event> events;
    std::erase_if(deferred_, [&](const mt_process_event& event) {
        if (static_cast<pid_t>(event.header.tgid) != pid) return false;
        events.push_back(event);
        return true;
    });
    for (const mt_process_event& event : events)
        if (listener) on_process(event, *listener);
}

}  // namespace memtrace
